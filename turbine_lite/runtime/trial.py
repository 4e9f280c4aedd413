"""Which of IREE's drivers runs a program faster here, found out on its first calls.

Whether waking other threads pays depends on the machine as much as on the program: it takes 10 microseconds on some,
and 300 in some virtual machines. Both drivers run the same VMFB.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

import torch

from turbine_lite.graph.signature import Signature
from turbine_lite.runtime.executable import Hooks, SpecializedExecutable

__all__ = ["DriverTrial", "Program"]

log = logging.getLogger("turbine_lite")

# Calls of each driver in turn. The first of a turn is not counted: it loads the program, or wakes threads.
_TURNS = (4, 4, 4, 4)

# Threads must win by this much: they take the machine from others.
_WORTH_IT = 0.9


class DriverTrial:
    """Runs a program as :class:`SpecializedExecutable` does, on one thread and on all in turn, then on the faster."""

    def __init__(self, vmfb: bytes, signature: Signature, hooks: Hooks | None = None) -> None:
        self.signature = signature
        self._rivals = [SpecializedExecutable(vmfb, signature, name, hooks) for name in ("local-sync", "local-task")]
        self._schedule = [(turn % 2, call > 0) for turn, calls in enumerate(_TURNS) for call in range(calls)]
        self._seconds: list[list[float]] = [[], []]
        self._calls = 0
        self._winner: SpecializedExecutable | None = None

    @property
    def rivals(self) -> tuple[SpecializedExecutable, ...]:
        """The program with each driver that may still win."""
        return tuple(self._rivals)

    @property
    def driver(self) -> str:
        """The driver that won; ``"auto"`` before the end."""
        return "auto" if self._winner is None else self._winner.driver

    def __call__(self, *args: Any) -> list[torch.Tensor]:
        """Run with tensors (and numbers) as the signature lists them; returns its results in order."""
        return self.run(args)

    def run(self, args: Sequence[Any]) -> list[torch.Tensor]:
        """The same with the arguments in a sequence."""
        if self._winner is not None:
            return self._winner.run(args)
        rival, counts = self._schedule[min(self._calls, len(self._schedule) - 1)]
        self._calls += 1
        started = time.perf_counter()
        results = self._rivals[rival].run(args)
        if counts:
            self._seconds[rival].append(time.perf_counter() - started)
        if self._calls >= len(self._schedule):
            self._decide()
        return results

    def _decide(self) -> None:
        one, all_threads = (_typical(seconds) for seconds in self._seconds)
        self._winner = self._rivals[int(all_threads < _WORTH_IT * one)]
        self._rivals = [self._winner]
        log.debug("%s: %.3f ms on one thread, %.3f ms on all", self._winner.driver, one * 1e3, all_threads * 1e3)


# A compiled region, on the driver that its size or its trial says.
Program = SpecializedExecutable | DriverTrial


def _typical(seconds: list[float]) -> float:
    """The mean without the largest: hesitant threads count, one interruption does not."""
    kept = sorted(seconds)[:-1]
    return sum(kept) / len(kept) if kept else float("inf")
