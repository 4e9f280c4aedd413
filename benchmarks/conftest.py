from __future__ import annotations

from collections import defaultdict

import pytest
import torch


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> None:
    torch._dynamo.reset()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The ratio of eager's (or the baseline's) median to ours for each case."""
    session = getattr(config, "_benchmarksession", None)
    cases: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for bench in session.benchmarks if session else ():
        who = bench.extra_info.get("who")
        if who and bench.stats.data:
            cases[bench.group, bench.extra_info["case"]][who] = bench.stats.median
    if not cases:
        return
    terminalreporter.section("ratios of medians: above 1 turbine_lite is faster")
    for (group, case), medians in sorted(cases.items()):
        ours = medians.get("turbine_lite")
        row = [f"{who} {median * 1e3:10.4f} ms" for who, median in sorted(medians.items())]
        ratios = [
            f"{who}/turbine_lite {median / ours:.2f}" for who, median in medians.items() if ours and who[0] != "t"
        ]
        terminalreporter.write_line(f"{group:14} {case:16} {'  '.join(row)}   {'  '.join(ratios)}")
