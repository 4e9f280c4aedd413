"""``python -m tests.conformance.opinfo_table``: run the operator database and write ``opinfo.json``."""

from __future__ import annotations

import argparse
import concurrent.futures
import fnmatch
import json
import multiprocessing
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch

from tests.conformance.opinfo import COLUMNS, names_in, run_op

TABLE = Path(__file__).with_name("opinfo.json")

# A job that is not done by then hangs: a compilation has its own limit of 600 s.
_LIMIT_SECONDS = 1200

Job = tuple[str, str]


def load_table() -> dict[str, dict[str, str]]:
    """From column and operator to status."""
    table: dict[str, dict[str, str]] = json.loads(TABLE.read_text())
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--column", choices=COLUMNS, action="append", help="default: all")
    parser.add_argument("-k", default="*", help="only operators whose name matches this pattern")
    parser.add_argument("--again", default="", help="only rows of the table whose status contains this")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    import turbine_lite.compile_graph  # noqa: F401  # imported once, before the forks

    table = load_table() if TABLE.exists() else {}
    jobs = [
        (column, name)
        for column in args.column or COLUMNS
        for name in names_in(column)
        if fnmatch.fnmatch(name, args.k) and args.again in table.get(column, {}).get(name, "")
    ]
    wrong = []
    started = time.monotonic()
    for number, ((column, name), status) in enumerate(_run(jobs, args.jobs), 1):
        print(f"[{number}/{len(jobs)} {time.monotonic() - started:.0f} s] {column} {name}: {status}", flush=True)
        rows = table.setdefault(column, {})
        if status.startswith("WRONG"):
            wrong.append((column, name, status))
            rows.pop(name, None)
        else:
            rows[name] = status
        if number % 100 == 0:
            _write(table)
    _write(table)
    for row in wrong:
        print(*row)
    return 1 if wrong else 0


def _write(table: dict[str, dict[str, str]]) -> None:
    TABLE.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n")


def _run(jobs: list[Job], workers: int) -> Iterator[tuple[Job, str]]:
    # A crash breaks a pool: small pools, and what was lost is run again one by one.
    for start in range(0, len(jobs), 32):
        chunk = jobs[start : start + 32]
        done = dict(_run_pool(chunk, workers))
        yield from done.items()
        for job in chunk:
            if job not in done:
                yield job, dict(_run_pool([job], 1)).get(job, "WRONG crash or hang of the process")


def _run_pool(jobs: list[Job], workers: int) -> Iterator[tuple[Job, str]]:
    context = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(workers, context) as pool:
        futures = {pool.submit(_attempt, job): job for job in jobs}
        try:
            for future in concurrent.futures.as_completed(futures, _LIMIT_SECONDS):
                yield futures[future], future.result()
        except concurrent.futures.process.BrokenProcessPool:
            return
        except TimeoutError:
            for process in list(pool._processes.values()):
                process.kill()


def _attempt(job: Job) -> str:
    column, name = job
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    try:
        return run_op(name, column)
    except Exception as error:  # reported, and fails the run
        return f"WRONG {type(error).__name__}: {' '.join(str(error).split())[:300]}"


if __name__ == "__main__":
    sys.exit(main())
