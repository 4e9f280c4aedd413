"""Results as one HTML page that needs nothing else, and as tables.

``python -m benchmarks.report DIR RESULTS.json [RESULTS.json ...]`` makes one report, in DIR, of runs on one machine.
"""

from __future__ import annotations

import argparse
import html
import math
import sys
from collections.abc import Iterable
from pathlib import Path

from benchmarks.peers import OURS
from benchmarks.results import Record, geometric_means, load, markdown, peers_of, ratio, save, sections

__all__ = ["main", "page", "write_report"]

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2024; --soft: #6b7280; --line: #d9dde3; --back: #fff;
  --faster: #2f855a; --slower: #c2410c; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --soft: #9aa3af; --line: #363c45; --back: #16191d;
  --faster: #48bb78; --slower: #f08a4b; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back); max-width: 76rem;
  margin: 2rem auto; padding: 0 1rem; }
h2 { margin-top: 2.5rem; font-size: 1.15rem; } p, dl { color: var(--soft); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .2rem .6rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } thead th { color: var(--soft); font-weight: 600; }
tfoot td { font-weight: 700; border-bottom: 0; } .error { color: var(--soft); }
.bar { display: inline-block; height: .55rem; vertical-align: middle; border-radius: 2px; }
.half { display: inline-block; width: 4.5rem; height: 1.2em; line-height: 1.2em; vertical-align: middle; }
.left { text-align: right; } .right { text-align: left; }
.axis { border-left: 1px solid var(--soft); } .value { display: inline-block; width: 3rem; }
dt { float: left; clear: left; width: 11rem; } dd { margin: 0 0 0 11rem; }
"""

# A bar of this length stands for a factor of 2**_OCTAVES.
_OCTAVES = 3.0
_LENGTH = 4.5


def page(machine: dict[str, str], records: Iterable[Record]) -> str:
    records = list(records)
    facts = "".join(f"<dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd>" for name, value in machine.items())
    tables = "".join(_table(title, members) for title, members in sections(records))
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>turbine_lite benchmark</title>'
        f"<style>{_STYLE}</style><h1>turbine_lite against other ways to run PyTorch on a CPU</h1>"
        f"<p>Medians of one call. A bar is another's median over turbine_lite's: to the right of the axis turbine_lite "
        f"is faster, to the left the other is. All of a row were timed in turns in one run.</p><dl>{facts}</dl>{tables}"
        "</html>\n"
    )


def _table(title: str, records: list[Record]) -> str:
    others = [peer for peer in peers_of(records) if peer != OURS]
    head = "".join(f"<th>{html.escape(peer)}</th>" for peer in [OURS, *others])
    rows = "".join(_table_row(record, others) for record in records)
    means = geometric_means(records)
    foot = "".join(f"<td>{_bar(means[peer]) if peer in means else ''}</td>" for peer in others)
    return (
        f"<h2>{html.escape(title)}</h2><table><thead><tr><th>case</th>{head}</tr></thead><tbody>{rows}</tbody>"
        f"<tfoot><tr><td>geometric mean</td><td></td>{foot}</tr></tfoot></table>"
    )


def _table_row(record: Record, others: list[str]) -> str:
    cells = "".join(f"<td>{_cell(record, peer)}</td>" for peer in [OURS, *others])
    return f"<tr><td>{html.escape(record.case)}</td>{cells}</tr>"


def _cell(record: Record, peer: str) -> str:
    outcome = record.outcomes.get(peer)
    if outcome is None:
        return ""
    if outcome.median is None:
        return f'<span class="error" title="{html.escape(outcome.error)}">{html.escape(outcome.error[:18])}…</span>'
    costs = f"first call {outcome.first_call_seconds:.1f} s, peak {outcome.peak_bytes / 2**20:.0f} MiB"
    milliseconds = f'<span title="{costs}">{outcome.median * 1e3:.3g} ms</span>'
    value = ratio(record, peer)
    return milliseconds if value is None or peer == OURS else f"{milliseconds} {_bar(value)}"


def _bar(value: float) -> str:
    length = min(1.0, abs(math.log2(value)) / _OCTAVES) * _LENGTH
    color = "faster" if value >= 1 else "slower"
    bar = f'<span class="bar" style="width:{length:.2f}rem;background:var(--{color})"></span>'
    left, right = ("", bar) if value >= 1 else (bar, "")
    return (
        f'<span class="half left">{left}</span><span class="half right axis">{right}</span>'
        f'<span class="value">{value:.2f}</span>'
    )


def write_report(directory: Path, machine: dict[str, str], records: list[Record]) -> None:
    """Write ``results.json``, ``report.html`` and ``RESULTS.md``."""
    directory.mkdir(parents=True, exist_ok=True)
    save(machine, records, directory / "results.json")
    (directory / "report.html").write_text(page(machine, records))
    facts = "".join(f"- {name}: {value}\n" for name, value in machine.items())
    (directory / "RESULTS.md").write_text(f"# Results\n\n{facts}\n{markdown(records)}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("results", type=Path, nargs="+")
    args = parser.parse_args()
    loaded = [load(path) for path in args.results]
    machines = {tuple((name, fact) for name, fact in machine.items() if name != "date") for machine, _ in loaded}
    if len(machines) > 1:
        parser.error(f"these are results of different machines, which no table should mix: {sorted(machines)}")
    write_report(args.directory, loaded[-1][0], [record for _, records in loaded for record in records])
    return 0


if __name__ == "__main__":
    sys.exit(main())
