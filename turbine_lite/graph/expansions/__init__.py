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
    scans,
    special,
    sums,
    writes,
)
from turbine_lite.graph.expansions.expansion import Expansion

__all__ = ["EXPANSIONS", "Expansion"]

_FAMILIES = (elementwise, integers, special, bessel, reductions, sums, scans, movement, pooling, writes, quantized)

# By the operator's name, such as "aten.erfc.default".
EXPANSIONS: dict[str, Expansion] = {
    str(op): expansion for family in _FAMILIES for op, expansion in family.EXPANSIONS.items()
}
