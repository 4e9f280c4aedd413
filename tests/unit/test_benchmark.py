"""The benchmark measures what it says, and tells wrong results and failures from fast ones."""

from __future__ import annotations

import dataclasses
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

from benchmarks import contest, environments, report, results
from benchmarks.cases import CASES
from benchmarks.contest import Outcome, open_contest
from benchmarks.peers import OURS, PEERS
from benchmarks.results import Record


def _record(case="a", group="micro", **medians):
    return Record(case, group, 2, {peer: Outcome([median], 1.5, 2**20) for peer, median in medians.items()})


RECORDS = [
    _record("a", eager=0.004, turbine_lite=0.002, inductor=0.001),
    _record("b", eager=0.002, turbine_lite=0.004, inductor=0.016),
    _record("c", "model", eager=0.001, turbine_lite=0.001),
]


def test_each_peer_is_timed_in_a_process_of_its_own():
    with open_contest(CASES["add_8_floats"], ["eager", OURS], threads=1) as race:
        for _ in range(3):
            race.round_of_others()
            race.round_of_ours()
    for outcome in race.outcomes.values():
        assert outcome.error == ""
        assert len(outcome.samples) == 3
        assert 0 < outcome.median < 0.1
        assert outcome.first_call_seconds > 0
        assert outcome.peak_bytes > 2**20


def test_a_peer_that_fails_is_named_with_its_error():
    case = dataclasses.replace(CASES["add_8_floats"], name="no such case")
    with open_contest(case, [OURS], threads=1) as race:
        race.round_of_ours()
    assert race.outcomes[OURS].error == "KeyError: 'no such case'"
    assert race.outcomes[OURS].median is None


@pytest.mark.parametrize(
    ("got", "error"),
    [
        ([torch.ones(3)], ""),
        ([torch.ones(3) * 1.001], ""),
        ([torch.ones(3) * 1.1], "wrong result: off by 0.1 where eager's largest number is 1"),
        ([torch.full((3,), float("nan"))], "wrong result: off by nan where eager's largest number is 1"),
        ([torch.ones(4)], "wrong result: other shapes than eager's"),
        ([], "wrong result: other shapes than eager's"),
    ],
)
def test_wrong_results(got, error):
    assert contest._difference(got, [torch.ones(3)]) == error


def test_ratios_and_their_geometric_means():
    assert results.ratio(RECORDS[0], "eager") == 2
    assert results.ratio(RECORDS[2], "inductor") is None
    assert results.geometric_means(RECORDS[:2]) == pytest.approx({"eager": 1.0, "inductor": 2**0.5})


def test_results_survive_a_file(tmp_path):
    results.save(results.machine(), RECORDS, tmp_path / "results.json")
    machine, records = results.load(tmp_path / "results.json")
    assert records == RECORDS
    assert machine["torch"] == torch.__version__


def test_one_report_of_two_runs(tmp_path, monkeypatch, capsys):
    files = [str(tmp_path / f"{number}.json") for number in range(3)]
    for file, cpu, records in zip(files, ("one", "one", "another"), (RECORDS[:1], RECORDS[1:], []), strict=True):
        results.save({"cpu": cpu, "date": file}, records, Path(file))
    monkeypatch.setattr(sys, "argv", ["report", str(tmp_path / "all"), *files[:2]])
    assert report.main() == 0
    assert results.load(tmp_path / "all" / "results.json") == ({"cpu": "one", "date": files[1]}, RECORDS)
    assert "| a |" in (tmp_path / "all" / "RESULTS.md").read_text()
    monkeypatch.setattr(sys, "argv", ["report", str(tmp_path / "all"), *files])
    with pytest.raises(SystemExit):
        report.main()
    assert "different machines" in capsys.readouterr().err


def test_the_table():
    text = results.markdown(RECORDS)
    assert "| a | 4 ms (2.00) | 2 ms | 1 ms (0.50) |" in text
    assert "| **geometric mean** | **1.00** |  | **1.41** |" in text
    assert "| c | 1.5 s, 1 MiB | 1.5 s, 1 MiB |" in text


def test_the_page_is_well_formed_and_has_every_case():
    failed = Record("d", "micro", 2, {"eager": Outcome([1.0]), OURS: Outcome(error="<wrong> & worse")})
    page = report.page({"cpu": "<one>"}, [*RECORDS, failed])
    parser = _Tags()
    parser.feed(page)
    assert parser.open == ["html"]
    assert {"a", "b", "c", "d"} <= set(parser.texts)
    assert "<wrong>" not in page
    assert "http" not in page


class _Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag == "html":
            return
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def test_names_are_unique_and_groups_known():
    groups = {group for peer in PEERS.values() for group in peer.groups}
    assert {case.group for case in CASES.values()} == groups
    assert set(environments._PACKAGES) <= set(PEERS)
