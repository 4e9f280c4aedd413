"""Seconds until a saved package has its first result, beside ``torch.compile`` without and with programs in its cache.

``python -m benchmarks.packages [CASE ...] [--rounds N]`` saves each case once, then starts one process per way and
round, in turns. The process that loads the package imports neither torch nor a compiler.
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
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

import turbine_lite
from benchmarks.cases import CASES

_DEFAULT_CASES = ("bert_base_batch_1", "resnet50_batch_1")

# Arguments: the package, the inputs. Its clock starts when the interpreter and numpy are there.
_LOADS = """
import json, sys, time
import numpy as np
with np.load(sys.argv[2]) as file:
    inputs = dict(file)
started = time.perf_counter()
import turbine_lite
imported = time.perf_counter()
package = turbine_lite.load(sys.argv[1])
loaded = time.perf_counter()
package(**inputs)
called = time.perf_counter()
assert "torch" not in sys.modules
print(json.dumps({"before": loaded - imported, "first_call": called - loaded, "all": called - started}))
"""
# Arguments: the case, the options. Its clock starts when the model is there.
_COMPILES = """
import json, sys, time, warnings
import torch
from benchmarks.cases import CASES
warnings.simplefilter("ignore")
program = CASES[sys.argv[1]].build()
started = time.perf_counter()
call = program.bind(torch.compile(program.call, backend="turbine_lite_cpu", options=json.loads(sys.argv[2])))
compiled = time.perf_counter()
with torch.no_grad():
    call()
called = time.perf_counter()
print(json.dumps({"before": compiled - started, "first_call": called - compiled, "all": called - started}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", default=_DEFAULT_CASES)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    unknown = [case for case in args.cases if case not in CASES]
    if unknown:
        parser.error(f"no such case: {', '.join(unknown)}; there are {', '.join(CASES)}")
    print(f"{'case':24}{'way':36}{'load or wrap':>14}{'first call':>14}{'process':>14}")
    for case in args.cases:
        with tempfile.TemporaryDirectory() as folder:
            _compare(case, Path(folder), args.rounds)


def _compare(case: str, folder: Path, rounds: int) -> None:
    program = CASES[case].build()
    assert isinstance(program.arguments, dict)
    package, inputs, warm = folder / "case.tl", folder / "inputs.npz", folder / "cache"
    turbine_lite.save(program.call, package, kwargs=program.arguments)
    np.savez(inputs, **{name: value.numpy() for name, value in program.arguments.items()})
    del program
    loads = [_LOADS, str(package), str(inputs)]
    ways = {"package": (loads, warm)}
    for name, options in (("default", {}), ("all in IREE", {"extern": "none", "fallback": "error"})):
        compiles = [_COMPILES, case, json.dumps(options)]
        _run(compiles, warm)
        ways[f"torch.compile, {name}, from cache"] = (compiles, warm)
        ways[f"torch.compile, {name}, no cache"] = (compiles, folder / "none")
    found: dict[str, list[Mapping[str, float]]] = {way: [] for way in ways}
    for number in range(rounds):
        for way, (command, cache) in ways.items():
            found[way].append(_run(command, cache if cache == warm else folder / f"{number} {way}"))
    for way, runs in found.items():
        row = [statistics.median(run[key] for run in runs) for key in ("before", "first_call", "process")]
        print(f"{case:24}{way:36}" + "".join(f"{seconds:12.3f} s" for seconds in row), flush=True)


def _run(command: list[str], cache: Path) -> Mapping[str, float]:
    environment = {**os.environ, "TURBINE_LITE_CACHE_DIR": str(cache), "OMP_NUM_THREADS": str(torch.get_num_threads())}
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", *command], env=environment, check=True, capture_output=True, text=True)
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return {**measured, "process": time.perf_counter() - started}


if __name__ == "__main__":
    main()
