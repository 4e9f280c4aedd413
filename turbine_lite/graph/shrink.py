"""From a region with a fault to a small part of it that has the fault, by bisection."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

from torch.fx import GraphModule, Node

__all__ = ["calls_of", "shrink"]


def calls_of(gm: GraphModule) -> list[Node]:
    """The calls of a region in order, without those that only take an item of a result."""
    return [n for n in gm.graph.nodes if n.op == "call_function" and n.target is not operator.getitem]


def shrink(calls: Sequence[Node], fails: Callable[[Sequence[Node]], bool]) -> list[Node]:
    """A short stretch of ``calls`` for which ``fails`` holds, as it is known to do for all of them.

    Asks about 2 log2(n) times for n calls: first for the shortest beginning that fails, then for the shortest end of
    what its last call depends on. One call, unless the fault needs several.
    """
    beginning = calls[: _smallest(1, len(calls), lambda n: fails(calls[:n]))]
    needed = _ancestors(beginning[-1])
    cone = [node for node in beginning if node in needed]
    if len(cone) < len(beginning) and not fails(cone):
        cone = list(beginning)
    length = _smallest(1, len(cone), lambda n: fails(cone[-n:]))
    return list(cone[-length:])


def _smallest(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """A number for which ``holds`` is true, and false for the one before it; it is known to be true for ``high``."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return high


def _ancestors(node: Node) -> set[Node]:
    found, pending = {node}, [node]
    while pending:
        for source in pending.pop().all_input_nodes:
            if source not in found:
                found.add(source)
                pending.append(source)
    return found
