"""How much of a model's time is in matmuls, convolutions and attention of PyTorch's libraries, and what that allows.

``python -m benchmarks.limits [CASE ...]`` runs models in eager and in turbine_lite under torch.profiler. Whatever is
done to the rest of a graph, it does not become faster than those kernels alone: the last column, eager's time divided
by the time that turbine_lite spends in them, is the most that better code around them could reach.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.cases import CASES
from benchmarks.child import timed
from benchmarks.peers import OURS, PEERS

_CALLS = 10
_ROUNDS = 5
_KERNELS = (
    "mkldnn::",
    "aten::addmm",
    "aten::mm",
    "aten::bmm",
    "aten::baddbmm",
    "aten::mkldnn_convolution",
    "aten::_scaled_dot_product",
)


def main() -> None:
    """Print the table."""
    torch.set_grad_enabled(False)
    names = sys.argv[1:] or [name for name, case in CASES.items() if case.group == "model" and name.endswith("_1")]
    print("| case | eager | turbine_lite | of which in kernels | eager / kernels |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name in names:
        eager, ours, kernels = _measure(name)
        print(f"| {name} | {eager:.2f} ms | {ours:.2f} ms | {kernels:.2f} ms | {eager / kernels:.2f} |", flush=True)


def _measure(name: str) -> tuple[float, float, float]:
    """Milliseconds of a call in eager, in turbine_lite, and in the kernels within the latter: medians of rounds."""
    program = CASES[name].build()
    eager, ours = program.bind(program.call), program.bind(PEERS[OURS].compile(program.call))
    for call in (eager, ours):
        for _ in range(20):  # compiles, and finds its driver
            call()
    rounds = [(_time(eager), _time(ours), _in_kernels(ours)) for _ in range(_ROUNDS)]
    eager_ms, ours_ms, kernels_ms = (statistics.median(column) for column in zip(*rounds, strict=True))
    return eager_ms, ours_ms, kernels_ms


def _time(call: Callable[[], Any]) -> float:
    call()
    return timed(call, _CALLS) * 1e3


def _in_kernels(call: Callable[[], Any]) -> float:
    call()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(_CALLS):
            call()
    rows = profiler.key_averages()
    return sum(row.self_cpu_time_total for row in rows if row.key.startswith(_KERNELS)) / _CALLS / 1e3


if __name__ == "__main__":
    main()
