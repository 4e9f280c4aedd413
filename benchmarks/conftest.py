from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks.environments import interpreter_of
from benchmarks.peers import OURS, PEERS
from benchmarks.report import write_report
from benchmarks.results import Record, machine, markdown

_RECORDS = pytest.StashKey[list[Record]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("turbine_lite's benchmark")
    group.addoption("--peers", help=f"who is timed, of {', '.join(PEERS)}; all that are installed if not given")
    group.addoption("--threads", help="numbers of threads, such as 1,2; 1 and all of the machine's if not given")
    group.addoption(
        "--report", type=Path, metavar="DIR", help="write results.json, report.html and RESULTS.md to this directory"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_RECORDS] = []


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "threads" in metafunc.fixturenames:
        given = metafunc.config.getoption("--threads") or f"1,{torch.get_num_threads()}"
        metafunc.parametrize("threads", sorted({int(count) for count in given.split(",")}))


@pytest.fixture
def records(request: pytest.FixtureRequest) -> list[Record]:
    return request.config.stash[_RECORDS]


@pytest.fixture(scope="session")
def peers(request: pytest.FixtureRequest) -> list[str]:
    """Who is timed; turbine_lite always is."""
    given = request.config.getoption("--peers")
    if given is None:
        return [peer for peer in PEERS if interpreter_of(peer)]
    chosen = [peer.strip() for peer in given.split(",")]
    for peer in chosen:
        if peer not in PEERS:
            raise pytest.UsageError(f"unknown peer {peer!r}; known: {', '.join(PEERS)}")
        if not interpreter_of(peer):
            raise pytest.UsageError(f"{peer} is not installed: python -m benchmarks.environments {peer}")
    return [peer for peer in PEERS if peer in chosen or peer == OURS]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    records = config.stash[_RECORDS]
    if not records:
        return
    terminalreporter.section("medians, and in brackets the ratio to turbine_lite's: above 1 turbine_lite is faster")
    terminalreporter.write(markdown(records))


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """After each case, so that an interrupted run keeps what it has."""
    directory, records = item.config.getoption("--report"), item.config.stash[_RECORDS]
    if not directory or not records:
        return
    write_report(directory, machine(), records)
