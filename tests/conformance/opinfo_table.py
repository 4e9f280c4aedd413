"""``python -m tests.conformance.opinfo_table``: run the operator database and write ``opinfo.json``."""

from __future__ import annotations

import argparse
import fnmatch
import json
import multiprocessing
import multiprocessing.connection
import sys
import time
import warnings
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from tests.conformance.opinfo import COLUMNS, names_in, run_op

TABLE = Path(__file__).with_name("opinfo.json")

# What is not done by then hangs.
_LIMIT_SECONDS = 600

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
    parser.add_argument("--missing", action="store_true", help="only rows that the table does not have")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    import turbine_lite.compile_graph  # noqa: F401  # imported once, before the forks

    table = load_table() if TABLE.exists() else {}
    jobs = [
        (column, name)
        for column in args.column or COLUMNS
        for name in names_in(column)
        if fnmatch.fnmatch(name, args.k)
        and args.again in table.get(column, {}).get(name, "")
        and not (args.missing and name in table.get(column, {}))
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
        if number % 20 == 0:
            _write(table)
    _write(table)
    for row in wrong:
        print(*row)
    return 1 if wrong else 0


def _write(table: dict[str, dict[str, str]]) -> None:
    TABLE.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n")


def _run(jobs: list[Job], count: int) -> Iterator[tuple[Job, str]]:
    """Run the jobs in forked processes, which are made anew where a job ends or stalls one."""
    waiting = list(reversed(jobs))
    workers = {worker.connection: worker for worker in (_Worker() for _ in range(min(count, len(jobs))))}
    for worker in workers.values():
        worker.take(waiting.pop())
    while workers:
        ready = multiprocessing.connection.wait(list(workers), timeout=1)
        for connection, worker in list(workers.items()):
            if connection in ready:
                status = worker.status()
            elif time.monotonic() > worker.deadline:
                status = f"WRONG not done after {_LIMIT_SECONDS} s"
            else:
                continue
            yield worker.job, status
            del workers[connection]
            if status.startswith("WRONG"):
                worker.end()
                worker = _Worker()
            if waiting:
                worker.take(waiting.pop())
                workers[worker.connection] = worker
            else:
                worker.end()


class _Worker:
    """A forked process that runs one job after the other."""

    job: Job
    deadline: float

    def __init__(self) -> None:
        context = multiprocessing.get_context("fork")
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def take(self, job: Job) -> None:
        self.job, self.deadline = job, time.monotonic() + _LIMIT_SECONDS
        self.connection.send(job)

    def status(self) -> str:
        try:
            return str(self.connection.recv())
        except EOFError:
            return "WRONG crash of the process"

    def end(self) -> None:
        self._process.kill()
        self._process.join()
        self.connection.close()


def _serve(connection: Connection) -> None:
    while True:
        connection.send(_attempt(connection.recv()))


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
