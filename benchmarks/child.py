"""A process that prepares one case for one peer and then times calls when told to.

``python -m benchmarks.child CASE PEER THREADS RESULT`` writes the result of the first call to the file RESULT, prints
one JSON object when it is ready, and another for each number of calls it reads from standard input.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from benchmarks.cases import CASES, Case
from benchmarks.peers import PEERS, Peer

__all__ = ["main", "timed"]

_WARM_UP_SECONDS = 0.02
_SETTLING_CALLS = 20
_SETTLING_SECONDS = 3.0


def main() -> int:
    # What a library prints must not get between the lines of the protocol.
    protocol = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    warnings.simplefilter("ignore")

    def say(**what: Any) -> None:
        print(json.dumps(what), file=protocol, flush=True)

    case, peer, threads, result = sys.argv[1:]
    torch.set_num_threads(int(threads))
    try:
        started = time.perf_counter()
        call = _prepared(CASES[case], PEERS[peer])
        built = time.perf_counter()
        torch.save(tensors_of(call()), result)
        first = time.perf_counter()
        _settle(call)
        say(ready=True, build_seconds=built - started, first_call_seconds=first - built, call_seconds=timed(call, 3))
        _forget_peak()
        for line in sys.stdin:
            _warm_up(call)
            say(seconds=timed(call, int(line)), peak_bytes=_peak_bytes())
    except Exception as error:
        traceback.print_exc()
        say(error=f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:300])
        return 1
    return 0


def tensors_of(result: Any) -> list[torch.Tensor]:
    return [leaf.detach().clone() for leaf in tree_leaves(_plain(result)) if isinstance(leaf, torch.Tensor)]


def _plain(result: Any) -> Any:
    """The models' output classes are dictionaries that hold caches too; those are not results."""
    return dict(result.items()) if hasattr(result, "items") else result


def _prepared(case: Case, peer: Peer) -> Callable[[], Any]:
    program = case.build()
    call = program.bind(peer.compile(program.call))
    if case.group != "training":

        def infer() -> Any:
            with torch.no_grad():
                return call()

        return infer
    # Too small a rate to change what the next step computes: all steps do the same work on nearly the same numbers.
    optimizer = torch.optim.SGD(program.call.parameters(), lr=1e-6)  # type: ignore[attr-defined]  # a module

    def step() -> Any:
        optimizer.zero_grad()
        result = call()
        loss = result if isinstance(result, torch.Tensor) else result.loss
        loss.backward()
        optimizer.step()
        return loss, [parameter.grad for parameter in program.call.parameters()]  # type: ignore[attr-defined]

    return step


def _settle(call: Callable[[], Any]) -> None:
    """Caches, allocators, what compiles at a second call, and what tries several ways on its first calls."""
    end = time.perf_counter() + _SETTLING_SECONDS
    for count in range(_SETTLING_CALLS):
        if count >= 3 and time.perf_counter() > end:
            break
        call()


def timed(call: Callable[[], Any], count: int) -> float:
    """Seconds for one call, the mean of ``count``."""
    started = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - started) / count


def _warm_up(call: Callable[[], Any]) -> None:
    """Wake threads and fill caches that the others have emptied, and wait until their threads have ceased to spin."""
    end = time.perf_counter() + _WARM_UP_SECONDS
    call()
    while time.perf_counter() < end:
        call()


def _forget_peak() -> None:
    """Have Linux count the peak of resident memory from now on."""
    with contextlib.suppress(OSError):  # not allowed everywhere; then the peak is that of compiling too
        Path("/proc/self/clear_refs").write_text("5")


def _peak_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


if __name__ == "__main__":
    sys.exit(main())
