"""How long the first call takes: how it grows with depth, what compiling regions beside each other and in the
background gives.

``python -m benchmarks.compile_time [--rounds N]`` runs each first call in a process of its own, in turns, without the
cache, and prints medians. Seconds are from ``torch.compile`` to the first result; the model is built before.
``aot_eager`` captures the same graphs and compiles nothing, so what is beyond it is turbine_lite's part.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.cases.models import bert
from benchmarks.peers import OURS, PEERS
from turbine_lite.compiler import client

_DEPTHS = (4, 12)
_REGIONS = 8


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child is not None:
        print(_first_call(args.child))
        return 0
    _depth(args.rounds)
    _beside_each_other(args.rounds)
    _in_background(args.rounds)
    return 0


def _depth(rounds: int) -> None:
    print(f"BERT-base, batch 1, 128 tokens; layers {_DEPTHS[0]} and {_DEPTHS[1]}, ratio")
    kinds = ("aot_eager", OURS, f"{OURS} all in IREE")
    seconds = _medians([f"{kind}:{depth}" for kind in kinds for depth in _DEPTHS], rounds)
    for kind in kinds:
        _row(kind, *(seconds[f"{kind}:{depth}"] for depth in _DEPTHS))
    for kind in kinds[1:]:
        _row(f"{kind}, without capture", *(seconds[f"{kind}:{d}"] - seconds[f"aot_eager:{d}"] for d in _DEPTHS))


def _beside_each_other(rounds: int) -> None:
    print(f"{_REGIONS} different regions; {os.cpu_count()} compilers, and one, ratio")
    several, one, captured = _medians([f"regions:{os.cpu_count()}", "regions:1", "regions:0"], rounds).values()
    _row("seconds", several, one)
    _row("without capture", several - captured, one - captured)


def _in_background(rounds: int) -> None:
    print("BERT-base, first call; aot_eager and in the background, ratio")
    seconds = _medians([f"aot_eager:{_DEPTHS[1]}", f"background:{_DEPTHS[1]}"], rounds)
    _row("seconds", *seconds.values())


def _row(name: str, before: float, after: float) -> None:
    print(f"  {name:44}{before:8.2f} s{after:8.2f} s{after / before:8.2f}", flush=True)


def _medians(children: list[str], rounds: int) -> dict[str, float]:
    seconds: dict[str, list[float]] = {child: [] for child in children}
    for _ in range(rounds):
        for child, measured in seconds.items():
            command = [sys.executable, "-m", "benchmarks.compile_time", "--child", child]
            done = subprocess.run(
                command, env={**os.environ, "TURBINE_LITE_CACHE": "0"}, check=True, capture_output=True, text=True
            )
            measured.append(float(done.stdout.splitlines()[-1]))
    return {child: statistics.median(measured) for child, measured in seconds.items()}


def _first_call(child: str) -> float:
    warnings.simplefilter("ignore")
    kind, _, count = child.partition(":")
    if kind == "regions":
        return _seconds(_compiled_regions(int(count)), torch.rand(64, 64))
    model = bert(num_hidden_layers=int(count)).eval()
    ids = torch.randint(0, 1000, (1, 128))
    if kind == "background":
        return _seconds(torch.compile(model, backend="turbine_lite_cpu", options={"compile": "background"}), ids)
    return _seconds(PEERS[kind].compile(model), ids)


def _compiled_regions(compilers: int) -> Callable[..., Any]:
    if not compilers:
        return torch.compile(_regions, backend="aot_eager")
    client.most_at_once = lambda: compilers
    options = {"min_block_size": 1, "extern": "none"}
    return torch.compile(_regions, backend="turbine_lite_cpu", options=options)


def _seconds(call: Callable[..., Any], argument: torch.Tensor) -> float:
    started = time.perf_counter()
    with torch.no_grad():
        call(argument)
    return time.perf_counter() - started


def _regions(x: torch.Tensor) -> torch.Tensor:
    """Parts of different sizes, between operators that IREE does not have."""
    for number in range(_REGIONS):
        x = torch.softmax(x @ x[:, : 64 - number] @ x[: 64 - number, :], -1).cumsum(0).sin()
        x = torch.special.airy_ai(x)
    return x


if __name__ == "__main__":
    sys.exit(main())
