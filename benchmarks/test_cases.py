"""All cases, all peers, in turns: ``python -m pytest benchmarks``. Run it on a machine that does nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.cases import CASES
from benchmarks.contest import open_contest
from benchmarks.peers import OURS
from benchmarks.results import Record

_ROUNDS = 15


@pytest.mark.parametrize("case", CASES)
def test_case(benchmark: Any, case: str, threads: int, peers: list[str], records: list[Record]) -> None:
    """pytest-benchmark's own figure is a round of our calls; the table is made of the children's clocks."""
    with open_contest(CASES[case], peers, threads) as contest:
        benchmark.group = f"{CASES[case].group}, {threads} threads"
        benchmark.extra_info.update(case=case, calls_in_a_round=contest.calls)
        benchmark.pedantic(contest.round_of_ours, setup=contest.round_of_others, rounds=_ROUNDS)
        records.append(Record(case, CASES[case].group, threads, contest.outcomes))
        assert not contest.outcomes[OURS].error
