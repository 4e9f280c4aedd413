"""One case, several peers, each in a process of its own, timed in turns."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import selectors
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.cases import Case
from benchmarks.environments import interpreter_of
from benchmarks.peers import OURS, PEERS

__all__ = ["Contest", "Outcome", "open_contest"]

_ROOT = Path(__file__).parent.parent
# Seconds that a peer may take to build, compile and call a case for the first time.
_PATIENCE = 900.0
# A round of a peer takes about this long, in seconds, and never fewer than one call nor more than so many.
_ROUND_SECONDS = 0.05
_MOST_CALLS = 1000
# How far from eager's a result may be, relative to the largest number in it.
_TOLERANCE = 2e-2


@dataclasses.dataclass
class Outcome:
    """What one peer did in one case; times are in seconds, for one call."""

    samples: list[float] = dataclasses.field(default_factory=list)
    first_call_seconds: float = 0.0
    peak_bytes: int = 0
    error: str = ""

    @property
    def median(self) -> float | None:
        return statistics.median(self.samples) if self.samples and not self.error else None


class _Process:
    """The other side of ``benchmarks.child``."""

    def __init__(self, case: str, peer: str, threads: int, directory: Path) -> None:
        self.outcome = Outcome()
        self.result = directory / f"{peer}.pt"
        command = [interpreter_of(peer) or sys.executable, "-m", "benchmarks.child", case, peer, str(threads)]
        self._log = (directory / f"{peer}.log").open("w+")
        self._process = subprocess.Popen(
            [*command, str(self.result)],
            cwd=_ROOT,
            # Nothing is known from earlier runs: the time of the first call is all that there is to do.
            env={**os.environ, "OMP_NUM_THREADS": str(threads), "TURBINE_LITE_CACHE_DIR": str(directory / "cache")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        ready = self._answer()
        seconds = ready.get("call_seconds", 1.0)
        self.calls = max(1, min(_MOST_CALLS, round(_ROUND_SECONDS / max(seconds, 1e-7))))
        self.outcome.first_call_seconds = ready.get("first_call_seconds", 0.0)

    def round(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the answer then tells why
            print(self.calls, file=self._process.stdin, flush=True)
        answer = self._answer()
        if not self.outcome.error:
            self.outcome.samples.append(answer["seconds"])
            self.outcome.peak_bytes = answer["peak_bytes"]

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._log.close()

    def _answer(self) -> dict[str, Any]:
        """One line of the child's; an error, its death or its silence become the outcome's error."""
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            in_time = selector.select(_PATIENCE)
        line = self._process.stdout.readline() if in_time else ""
        answer: dict[str, Any] = json.loads(line) if line else {"error": self._why_silent(bool(in_time))}
        self.outcome.error = answer.get("error", "")
        return answer

    def _why_silent(self, ended: bool) -> str:
        if not ended:
            return f"no answer after {_PATIENCE:.0f} s"
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self._log.seek(0)
        last = self._log.read().strip().splitlines()[-1:]
        return f"ended with status {self._process.returncode}: {''.join(last)}"[:300]


class Contest:
    """The processes of one case, ready to be timed.

    Attributes:
        calls: how many calls a round of ours has.
        outcomes: by peer.
    """

    def __init__(self, processes: dict[str, _Process]) -> None:
        self._processes = processes
        self.outcomes = {peer: process.outcome for peer, process in processes.items()}
        self._check_results()
        self.calls = processes[OURS].calls

    def round_of_ours(self) -> None:
        self._round(OURS)

    def round_of_others(self) -> None:
        for peer in self._processes:
            if peer != OURS:
                self._round(peer)

    def _round(self, peer: str) -> None:
        if not self.outcomes[peer].error:
            self._processes[peer].round()

    def _check_results(self) -> None:
        """A peer that computes something else is not faster than eager."""
        eager = self._processes.get("eager")
        if eager is None or eager.outcome.error:
            return
        want = torch.load(eager.result)
        for process in self._processes.values():
            if process is not eager and not process.outcome.error:
                process.outcome.error = _difference(torch.load(process.result), want)


def _difference(got: list[torch.Tensor], want: list[torch.Tensor]) -> str:
    if [t.shape for t in got] != [t.shape for t in want]:
        return "wrong result: other shapes than eager's"
    for a, b in zip(got, want, strict=True):
        error = (a.double() - b.double()).abs().max().item() if a.numel() else 0.0
        scale = b.double().abs().max().item() if a.numel() else 1.0
        if not error <= _TOLERANCE * max(scale, 1e-6):
            return f"wrong result: off by {error:.2g} where eager's largest number is {scale:.2g}"
    return ""


@contextlib.contextmanager
def open_contest(case: Case, peers: list[str], threads: int) -> Iterator[Contest]:
    """Prepare each peer, one after the other so that the times of first calls are true."""
    with tempfile.TemporaryDirectory(prefix="turbine_lite_bench_") as name, contextlib.ExitStack() as stack:
        processes = {}
        for peer in peers:
            if case.group not in PEERS[peer].groups:
                continue
            processes[peer] = _Process(case.name, peer, threads, Path(name))
            stack.callback(processes[peer].close)
        time.sleep(0.2)  # what the last compiler leaves behind ends
        yield Contest(processes)
