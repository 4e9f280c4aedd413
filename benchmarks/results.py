"""What was measured, as data: records, ratios, means, JSON and tables."""

from __future__ import annotations

import dataclasses
import datetime
import importlib.metadata
import json
import platform
import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.contest import Outcome
from benchmarks.peers import OURS, TUNED

__all__ = ["Record", "geometric_means", "load", "machine", "markdown", "ratio", "save"]


@dataclasses.dataclass
class Record:
    """One case on so many threads: what each peer did."""

    case: str
    group: str
    threads: int
    outcomes: dict[str, Outcome]


def ratio(record: Record, peer: str, to: str = OURS) -> float | None:
    """The peer's median over ours: above 1 turbine_lite is faster. None where either did not run."""
    theirs, ours = (record.outcomes.get(name, Outcome()).median for name in (peer, to))
    return theirs / ours if theirs and ours else None


def peers_of(records: Iterable[Record]) -> list[str]:
    """All that were timed, in the order of the table."""
    return list(dict.fromkeys(peer for record in records for peer in record.outcomes))


def sections(records: Iterable[Record]) -> Iterator[tuple[str, list[Record]]]:
    """Records by group and threads, with a title."""
    by_section: dict[tuple[str, int], list[Record]] = {}
    for record in records:
        by_section.setdefault((record.group, record.threads), []).append(record)
    for (group, threads), members in by_section.items():
        yield f"{group}, {threads} thread{'s' if threads > 1 else ''}", members


def geometric_means(records: Iterable[Record], to: str = OURS) -> dict[str, float]:
    """The geometric mean of each peer's ratios to ``to``, over the cases that both ran."""
    records = list(records)
    means = {}
    for peer in peers_of(records):
        ratios = [value for record in records if (value := ratio(record, peer, to))]
        if ratios and peer != to:
            means[peer] = statistics.geometric_mean(ratios)
    return means


def machine() -> dict[str, str]:
    """Where and with what this ran."""
    packages = ("torch", "torch-mlir", "iree-base-compiler", "iree-base-runtime", "transformers")
    versions = {name: importlib.metadata.version(name) for name in packages}
    return {
        "date": datetime.date.today().isoformat(),
        "cpu": _cpu_name(),
        "threads": str(torch.get_num_threads()),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "python": platform.python_version(),
        **versions,
    }


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def save(machine: dict[str, str], records: Iterable[Record], path: Path) -> None:
    content = {"machine": machine, "records": [dataclasses.asdict(record) for record in records]}
    path.write_text(json.dumps(content, indent=1) + "\n")


def load(path: Path) -> tuple[dict[str, str], list[Record]]:
    """The machine and the records of a file that :func:`save` wrote."""
    content: dict[str, Any] = json.loads(path.read_text())
    records = [
        Record(**{**record, "outcomes": {peer: Outcome(**outcome) for peer, outcome in record["outcomes"].items()}})
        for record in content["records"]
    ]
    return content["machine"], records


def markdown(records: Iterable[Record]) -> str:
    """A table for each group: medians in milliseconds, and ratios to ours in brackets."""
    lines = []
    for title, members in sections(records):
        peers = peers_of(members)
        lines += [f"## {title[0].upper()}{title[1:]}", "", _row("case", peers), _row("---", ["---:"] * len(peers))]
        lines += [_row(record.case, [_cell(record, peer) for peer in peers]) for record in members]
        for to in (OURS, TUNED):
            if to in peers:
                means = geometric_means(members, to)
                cells = [f"**{means[peer]:.2f}**" if peer in means else "" for peer in peers]
                lines.append(_row("**geometric mean**" + ("" if to == OURS else f", to {to}"), cells))
        lines.append("")
        lines += _costs(members, peers)
    return "\n".join(lines)


def _costs(records: list[Record], peers: list[str]) -> list[str]:
    """What a first call takes and what memory the later ones need; not worth a table for operators alone."""
    records = [record for record in records if record.group in ("model", "training")]
    if not records:
        return []
    lines = [_row("first call, peak memory", peers), _row("---", ["---:"] * len(peers))]
    for record in records:
        outcomes = [record.outcomes.get(peer) for peer in peers]
        cells = [
            f"{o.first_call_seconds:.1f} s, {o.peak_bytes / 2**20:.0f} MiB" if o and o.median else "" for o in outcomes
        ]
        lines.append(_row(record.case, cells))
    return [*lines, ""]


def _row(first: str, rest: list[str]) -> str:
    return f"| {' | '.join([first, *rest])} |"


def _cell(record: Record, peer: str) -> str:
    outcome = record.outcomes.get(peer)
    if outcome is None:
        return ""
    if outcome.median is None:
        return outcome.error.split(":")[0] or "-"
    value = ratio(record, peer)
    return f"{outcome.median * 1e3:.3g} ms" + (f" ({value:.2f})" if value and peer != OURS else "")
