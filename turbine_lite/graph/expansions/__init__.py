"""Expansions by family, see :mod:`turbine_lite.graph.expand`."""

from __future__ import annotations

from turbine_lite.graph.expansions import (
    bessel,
    elementwise,
    integers,
    movement,
    pooling,
    quantized,
    reductions,
    special,
    sums,
    writes,
)
from turbine_lite.graph.expansions.expansion import Expansion

__all__ = ["EXPANSIONS", "Expansion"]

# By the operator's name, such as "aten.erfc.default".
EXPANSIONS: dict[str, Expansion] = {
    str(op): expansion
    for family in (elementwise, integers, special, bessel, reductions, sums, movement, pooling, writes, quantized)
    for op, expansion in family.EXPANSIONS.items()
}
