"""Expansions by family, see :mod:`turbine_lite.graph.expand`."""

from __future__ import annotations

from turbine_lite.graph.expansions import (
    attention,
    bessel,
    convolution,
    elementwise,
    empty,
    integers,
    movement,
    pooling,
    quantized,
    reductions,
    rounding,
    scalars,
    scans,
    sorting,
    special,
    steps,
    sums,
    trigonometry,
    writes,
)
from turbine_lite.graph.expansions.expansion import Expansion

__all__ = ["EXPANSIONS", "Expansion"]

_FAMILIES = (
    *(empty, scalars, steps, elementwise, integers, special, bessel, reductions, sums, scans, sorting, movement),
    *(attention, convolution, pooling, writes, quantized, trigonometry, rounding),
)


def _by_operator() -> dict[str, tuple[Expansion, ...]]:
    table: dict[str, tuple[Expansion, ...]] = {}
    for family in _FAMILIES:
        for op, expansion in family.EXPANSIONS.items():
            table[str(op)] = (*table.get(str(op), ()), expansion)
    return table


# By the operator's name, such as "aten.erfc.default"; the first that applies is taken.
EXPANSIONS = _by_operator()
