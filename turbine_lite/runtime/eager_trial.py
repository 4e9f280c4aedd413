"""Whether a region runs much slower in IREE than in eager here, found out on its first call.

What is known to be slower on the whole is never given to IREE (``graph/extern/choose.py``). This is for what no table
knows: other operators, other sizes, other machines.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from turbine_lite.runtime.openmp import start_openmp
from turbine_lite.runtime.trial import DriverTrial, Program

__all__ = ["EagerTrial"]

log = logging.getLogger("turbine_lite")

# How many times slower IREE has to be, and by how many seconds. Less is within what a machine does by itself; and who
# compiles a few small operators alone wants to see them compiled.
_MUCH_SLOWER = 1.1
_LOSS = 50e-6
_LOSS_BESIDE = 20e-6
# Sizes that are dynamic may be small at first, when calling IREE is most of the time, and large later.
_LOSS_DYNAMIC = 1e-3

# Calls of each way that count; fewer where they take longer than this together.
_CALLS = 8
_SECONDS = 0.3


class EagerTrial:
    """Runs a program as it would run by itself, or ``in_eager`` if the first call's arguments show that to be faster.

    Args:
        program: the compiled region.
        in_eager: the same region in eager; takes the arguments one by one.
        beside: whether it is a part of a graph, others of which run in eager or in kernels. These leave OpenMP's
            threads spinning on the CPUs that IREE's would need, which is how it is timed then.
        on_eager: called once, with the seconds of a call in IREE and in eager, if the region is left to eager.
    """

    def __init__(
        self,
        program: Program,
        in_eager: Callable[..., Any],
        beside: bool,
        on_eager: Callable[[float, float], None],
    ) -> None:
        self.program: Program | None = program
        self._in_eager = in_eager
        self._beside = beside
        is_dynamic = program.signature.shapes is None
        self._loss = _LOSS_DYNAMIC if is_dynamic else _LOSS_BESIDE if beside else _LOSS
        self._on_eager = on_eager
        self._lock = threading.Lock()
        self._chosen: Callable[[Sequence[Any]], Sequence[torch.Tensor]] | None = None

    def __call__(self, *args: Any) -> Sequence[torch.Tensor]:
        """Run with tensors (and numbers) as the program's signature lists them; returns its results in order."""
        return self.run(args)

    def run(self, args: Sequence[Any]) -> Sequence[torch.Tensor]:
        """The same with the arguments in a sequence."""
        return self._first_call(args) if self._chosen is None else self._chosen(args)

    def _first_call(self, args: Sequence[Any]) -> Sequence[torch.Tensor]:
        with self._lock:
            chosen, program = self._chosen, self.program
            if chosen is None and program is not None:
                started = time.perf_counter()
                results = program.run(args)
                seconds = time.perf_counter() - started
                # AOTAutograd watches first calls through a dispatch mode, which would slow down what runs in eager.
                with _disable_current_modes():
                    self._choose(program, args, seconds)
                # Equal arguments give equal bits, from the first call on.
                return results if self.program is not None else self.run(args)
        return self.run(args)  # another thread has chosen

    def _choose(self, program: Program, args: Sequence[Any], first: float) -> None:
        """Choose; ``first`` is how many seconds the first call took, in which the program was loaded."""
        before = start_openmp if self._beside else _nothing
        try:
            eager = _least_seconds(self._run_in_eager, args, before)
        except Exception:  # whatever eager cannot run, such as an operator that has no kernel for a dtype
            log.debug("a region runs in IREE alone", exc_info=True)
            eager = float("inf")
        iree = first
        if self._is_slow(iree, eager):
            rivals = program.rivals if isinstance(program, DriverTrial) else (program,)
            iree = min(_least_seconds(rival.run, args, before) for rival in rivals)
        if self._is_slow(iree, eager):
            log.info("left to eager: a region takes %.3f ms in IREE, %.3f ms in eager", iree * 1e3, eager * 1e3)
            self.program, self._chosen = None, self._run_in_eager
            self._on_eager(iree, eager)
        else:
            self._chosen = program.run

    def _is_slow(self, iree: float, eager: float) -> bool:
        return iree > _MUCH_SLOWER * eager and iree - eager > self._loss

    def _run_in_eager(self, args: Sequence[Any]) -> Sequence[torch.Tensor]:
        results: Sequence[torch.Tensor] = self._in_eager(*args)
        return results


def _least_seconds(run: Callable[[Sequence[Any]], Any], args: Sequence[Any], before: Callable[[], None]) -> float:
    """The fastest of some calls; without the first, which loads, packs and fills caches, unless that took long.

    Not the median: beside compilers at work, threads that wait for each other take a hundred times as long, most times.
    """
    seconds: list[float] = []
    while len(seconds) <= _CALLS and sum(seconds) < _SECONDS:
        before()
        started = time.perf_counter()
        run(args)
        seconds.append(time.perf_counter() - started)
    return min(seconds[1:] or seconds)


def _nothing() -> None:
    pass
