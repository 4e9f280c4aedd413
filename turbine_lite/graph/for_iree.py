"""What is done to every graph on its way to IREE, in the order in which it has to be done."""

from __future__ import annotations

from torch.fx import GraphModule

from turbine_lite.compiler.flags import Traits
from turbine_lite.graph.bounds import check_arguments
from turbine_lite.graph.constants import fold_constants
from turbine_lite.graph.divisors import guard_divisors
from turbine_lite.graph.expand import expand_operators
from turbine_lite.graph.narrow_integers import widen_narrow_integers
from turbine_lite.graph.numerics import round_float_scalars
from turbine_lite.graph.rewrites import rewrite_for_lowering
from turbine_lite.graph.scalar_arguments import convert_scalar_arguments
from turbine_lite.graph.strided_reads import gather_strided_reads
from turbine_lite.graph.traits import traits_of
from turbine_lite.graph.write_targets import keep_targets_apart

__all__ = ["make_ready_for_iree"]


def make_ready_for_iree(gm: GraphModule, *, check: bool = True) -> tuple[Traits, bool]:
    """Rewrite a graph in place.

    Args:
        gm: dense arguments, dense results.
        check: count the indices that are not in their range, and divisors of zero.

    Returns:
        What flags depend on, and whether the count is a result more.
    """
    graph = gm.graph
    convert_scalar_arguments(graph)
    expand_operators(graph)
    keep_targets_apart(graph)
    constants = fold_constants(gm)
    counts = check_arguments(gm, constants, count=check)
    gather_strided_reads(graph)
    widen_narrow_integers(gm)
    rewrite_for_lowering(graph)
    guard_divisors(graph)
    traits = traits_of(graph)
    if not traits.keep_f64:
        round_float_scalars(graph)
    return traits, counts
