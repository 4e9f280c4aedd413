"""Several versions of one graph, of which the first call's arguments find the fastest."""

from __future__ import annotations

import dataclasses
import gc
import logging
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._dynamo.utils import counters
from torch.utils._python_dispatch import _disable_current_modes

from turbine_lite.graph.report import GraphReport
from turbine_lite.progress import progress_bar
from turbine_lite.runtime.memory import give_back_freed_memory
from turbine_lite.runtime.openmp import start_openmp

__all__ = ["Tuned", "Version"]

log = logging.getLogger("turbine_lite")

_ROUNDS = 9
# Of a round of one version: long enough for the clock, short enough that all see the same machine.
_SECONDS_OF_A_ROUND = 0.01
_MOST_CALLS_OF_A_ROUND = 100

# After each round, versions this much slower than the fastest leave; one that comes later in the list must be faster
# than those before it by more than the noise.
_OUT_OF_THE_RUNNING = 1.5
_NOISE = 0.98


@dataclasses.dataclass(frozen=True)
class Version:
    """A way to run a graph: what it is called, its function (boxed, see AOTAutograd) and what became of the graph."""

    name: str
    run: Callable[[list[Any]], Any]
    report: GraphReport

    def count(self) -> None:
        """Count it among what runs."""
        self.report.add_to(counters["turbine_lite"])
        counters["turbine_lite"][f"tuned: {self.name}"] += 1


class Tuned:
    """Calls the fastest of ``versions``; which one that is, the first call finds out by running them in turns.

    The versions must be pure but for random numbers: they run many times on the arguments of the first call. The
    random generator is left as one run leaves it.

    Args:
        versions: the ones to choose from. An error of the first is the caller's; another that raises is left out.
        seconds: the time that the choice may take.
        on_choice: called once, with the name of the fastest and the seconds of a call of each.
        show: whether a terminal shows how far the choice is.
    """

    def __init__(
        self,
        versions: Sequence[Version],
        seconds: float,
        on_choice: Callable[[str, Mapping[str, float]], None] = lambda name, timings: None,
        *,
        show: bool = True,
    ) -> None:
        self._boxed_call = True  # what AOTAutograd looks for, among an object's own attributes
        self._versions = list(versions)
        self._seconds = seconds
        self._on_choice = on_choice
        self._show = show
        self._lock = threading.Lock()
        self._chosen: Callable[[list[Any]], Any] | None = None
        self.report = versions[0].report
        self.timings: dict[str, float] = {}

    def __call__(self, args: list[Any]) -> Any:
        """Run with the list of arguments."""
        if self._chosen is None:
            with self._lock:
                if self._chosen is None:
                    self._choose(args)
        assert self._chosen is not None
        return self._chosen(args)

    def _choose(self, args: list[Any]) -> None:
        # AOTAutograd watches first calls through a dispatch mode, which would slow down what runs in eager.
        with torch.random.fork_rng(devices=[]), _disable_current_modes():
            self.timings = _time_in_turns(self._versions, args, self._seconds, show=self._show)
        winner = self._versions[0]
        for version in self._versions[1:]:
            if self.timings.get(version.name, float("inf")) < _NOISE * self.timings[winner.name]:
                winner = version
        shown = ", ".join(f"{name} {seconds * 1e3:.3f} ms" for name, seconds in self.timings.items())
        log.info("max-autotune chose %s of: %s", winner.name, shown)
        self._chosen, self.report = winner.run, winner.report
        # In place: AOTAutograd's wrappers keep this object's attributes as they were when it was made.
        self._versions.clear()
        gc.collect()  # FX graphs are cycles, and what lost holds its own packed copies of the parameters
        give_back_freed_memory()
        winner.count()
        self._on_choice(winner.name, self.timings)


def _time_in_turns(versions: Sequence[Version], args: list[Any], limit: float, *, show: bool) -> dict[str, float]:
    """Median seconds of a call of each version, from rounds in which each has its turn."""
    deadline = time.perf_counter() + limit
    calls = {version: n for version in versions if (n := _calls_of_a_round(version, args, version is versions[0]))}
    seconds: dict[Version, list[float]] = {version: [] for version in calls}
    running = list(calls)
    with progress_bar("timing versions", _ROUNDS, show=show) as progress:
        for _ in range(_ROUNDS):
            for version in running:
                seconds[version].append(_time(version, args, calls[version]))
            fastest = min(min(seconds[version]) for version in running)
            running = [version for version in running if min(seconds[version]) < _OUT_OF_THE_RUNNING * fastest]
            progress.update()
            if time.perf_counter() > deadline:
                break
    return {version.name: statistics.median(times) for version, times in seconds.items()}


def _calls_of_a_round(version: Version, args: list[Any], must_run: bool) -> int:
    """How many calls make a round; 0 for a version that cannot run."""
    try:
        version.run(list(args))  # loads the program, packs parameters
        once = _time(version, args, 1)
    except Exception:  # whatever it raises: the others can do without it, and the first one is the caller's
        if must_run:
            raise
        log.info("max-autotune: %s failed", version.name, exc_info=True)
        return 0
    return max(1, min(_MOST_CALLS_OF_A_ROUND, int(_SECONDS_OF_A_ROUND / once)))


def _time(version: Version, args: list[Any], calls: int) -> float:
    """Mean seconds of a call.

    Between two calls of a program there are operators of PyTorch's, if only to read its results. In a tight loop of
    nothing else IREE's threads would look faster than they are: Llama's next token 12 ms, and 16 ms in use.
    """
    version.run(list(args))  # the one before has emptied the caches
    seconds = 0.0
    for _ in range(calls):
        start_openmp()
        started = time.perf_counter()
        version.run(list(args))
        seconds += time.perf_counter() - started
    return seconds / calls
