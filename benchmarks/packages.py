"""Seconds until a saved package has its first result, beside ``torch.compile`` without and with programs in its cache.

``python -m benchmarks.packages [CASE ...] [--rounds N]`` saves each case once, then starts one process per way and
round, in turns. The process that loads the package imports neither torch nor a compiler.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import turbine_lite
from benchmarks.cases import CASES
from benchmarks.first_result import parser_of_cases, run_in_process
from benchmarks.peers import OURS

_PEERS = (OURS, f"{OURS} all in IREE")

# Arguments: the package, the inputs. Importing IREE's runtime takes a second: that is in the time of the process alone.
_LOADS = """
import json, sys, time
import numpy as np
with np.load(sys.argv[2]) as file:
    inputs = dict(file)
import iree.runtime
import turbine_lite
started = time.perf_counter()
package = turbine_lite.load(sys.argv[1])
loaded = time.perf_counter()
package(**inputs)
called = time.perf_counter()
assert "torch" not in sys.modules
print(json.dumps({"load": loaded - started, "call": called - loaded}))
"""


def main() -> None:
    args = parser_of_cases(__doc__).parse_args()
    print(f"{'case':24}{'way':48}{'load':>10}{'first call':>14}{'process':>12}")
    for case in args.cases:
        with tempfile.TemporaryDirectory() as folder:
            _compare(case, Path(folder), args.rounds, args.threads)


def _compare(case: str, folder: Path, rounds: int, threads: int) -> None:
    package, inputs, warm = folder / "case.tl", folder / "inputs.npz", folder / "cache"
    _save(case, package, inputs)
    found: dict[str, list[tuple[float, float, float]]] = {}
    for peer in _PEERS:
        run_in_process(case, peer, threads, str(warm))
    for number in range(rounds):
        found.setdefault("package", []).append(_load(package, inputs, threads))
        for peer in _PEERS:
            for cache, what in ((warm, "cache"), (folder / f"{peer} {number}", "no cache")):
                run = run_in_process(case, peer, threads, str(cache))
                row = (0.0, run["first_result_seconds"], run["process_seconds"])
                found.setdefault(f"torch.compile, {peer}, {what}", []).append(row)
    for way, rows in found.items():
        medians = map(statistics.median, zip(*rows, strict=True))
        print(f"{case:24}{way:48}" + "".join(f"{seconds:10.3f} s" for seconds in medians), flush=True)


def _save(case: str, package: Path, inputs: Path) -> None:
    program = CASES[case].build()
    assert isinstance(program.arguments, dict)
    turbine_lite.save(program.call, package, kwargs=program.arguments)
    np.savez(inputs, **{name: value.numpy() for name, value in program.arguments.items()})


def _load(package: Path, inputs: Path, threads: int) -> tuple[float, float, float]:
    """Seconds of loading, of the first call and of the whole process."""
    command = [sys.executable, "-c", _LOADS, str(package), str(inputs)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    started = time.perf_counter()
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    whole = time.perf_counter() - started
    measured = json.loads(done.stdout.splitlines()[-1])
    return measured["load"], measured["call"], whole


if __name__ == "__main__":
    main()
