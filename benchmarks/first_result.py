"""Seconds to the first result of a new process: turbine_lite, whose programs are in the cache, beside ``aot_eager``.

``python -m benchmarks.first_result [CASE ...] [--rounds N] [--threads N]`` starts one process per peer and round, in
turns, after one that fills the cache. ``aot_eager`` captures the same graph and compiles nothing: what turbine_lite
takes beyond it is its own work, which is to find the programs again, load them and pack the parameters.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

import torch

from benchmarks.cases import CASES
from benchmarks.peers import OURS, PEERS

_REFERENCE = "aot_eager"
_DEFAULT_CASES = ("bert_base_batch_1", "resnet50_batch_1")


def main() -> int:
    parser = parser_of_cases(__doc__)
    parser.add_argument("--child", metavar="PEER", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child is not None:
        print(json.dumps(_first_result(args.cases[0], args.child, args.threads)))
        return 0
    print(f"{'case':28}{'peer':14}{'capture, compile, run':>24}{'whole process':>16}{'compilers started':>19}")
    for case in args.cases:
        _compare(case, args.rounds, args.threads)
    return 0


def parser_of_cases(description: str | None) -> argparse.ArgumentParser:
    """Of a command line with cases, rounds and threads."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", type=_case, default=_DEFAULT_CASES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    return parser


def _case(name: str) -> str:
    if name not in CASES:
        raise argparse.ArgumentTypeError(f"no such case: {name}; there are {', '.join(CASES)}")
    return name


def _compare(case: str, rounds: int, threads: int) -> None:
    with tempfile.TemporaryDirectory() as cache:
        run_in_process(case, OURS, threads, cache)
        runs = [
            (peer, run_in_process(case, peer, threads, cache)) for _ in range(rounds) for peer in (_REFERENCE, OURS)
        ]
    medians = {}
    for peer in (_REFERENCE, OURS):
        mine = [run for name, run in runs if name == peer]
        medians[peer] = call, whole = [
            statistics.median(run[key] for run in mine) for key in ("first_result_seconds", "process_seconds")
        ]
        started = max(run["compilers_started"] for run in mine)
        print(f"{case:28}{peer:14}{call:22.2f} s{whole:14.2f} s{started:>19}")
    call, whole = (mine / reference for mine, reference in zip(medians[OURS], medians[_REFERENCE], strict=True))
    print(f"{case:28}{'ratio':14}{call:24.2f}{whole:16.2f}", flush=True)


def run_in_process(case: str, peer: str, threads: int, cache: str) -> dict[str, float]:
    """Seconds to the first result, and of the whole of a new process, with a directory for compiled programs."""
    command = [sys.executable, "-m", "benchmarks.first_result", case, "--child", peer, "--threads", str(threads)]
    started = time.perf_counter()
    done = subprocess.run(
        command, env={**os.environ, "TURBINE_LITE_CACHE_DIR": cache}, check=True, capture_output=True, text=True
    )
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return {**measured, "process_seconds": time.perf_counter() - started}


def _first_result(case: str, peer: str, threads: int) -> dict[str, float]:
    """Seconds from ``torch.compile`` to the result of the first call; the model is there before."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)
    program = CASES[case].build()
    commands: list[str] = []
    sys.addaudithook(lambda event, args: commands.append(str(args)) if event == "subprocess.Popen" else None)
    started = time.perf_counter()
    call = program.bind(PEERS[peer].compile(program.call))
    with torch.no_grad():
        call()
    seconds = time.perf_counter() - started
    compilers = sum("turbine_lite.compiler.worker" in command for command in commands)
    return {"first_result_seconds": seconds, "compilers_started": compilers}


if __name__ == "__main__":
    sys.exit(main())
