"""What became of a graph, in numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, MutableMapping

import torch
from torch.fx import GraphModule, Node

from turbine_lite.graph.once import computed_once
from turbine_lite.graph.sizes import numel_hint
from turbine_lite.graph.support import Reason
from turbine_lite.graph.views import computes

__all__ = ["GraphReport", "RegionReport", "compute_calls"]


@dataclasses.dataclass(frozen=True)
class RegionReport:
    """One compiled region: its calls, without views, and the bytes of its arguments and of its results."""

    calls: int
    bytes_in: int
    bytes_out: int

    @classmethod
    def of(cls, region: GraphModule) -> RegionReport:
        """Count a region; sizes that are dynamic count as what they were when the graph was captured."""
        arguments = [node for node in region.graph.nodes if node.op == "placeholder"]
        results = region.graph.output_node().all_input_nodes
        return cls(compute_calls(region), _bytes(arguments), _bytes(results))


@dataclasses.dataclass(frozen=True)
class GraphReport:
    """A graph of AOTAutograd after compilation.

    Attributes:
        kind: "inference", "forward" or "backward".
        calls: how many calls it has, without views.
        regions: the parts that run in IREE.
        reasons: why the others run in eager.
    """

    kind: str
    calls: int
    regions: tuple[RegionReport, ...]
    reasons: tuple[Reason, ...]

    @property
    def native_calls(self) -> int:
        """How many calls run in IREE."""
        return sum(region.calls for region in self.regions)

    @property
    def bytes_crossing(self) -> int:
        """Bytes that go into regions and come out of them; they are handed over, not copied."""
        return sum(region.bytes_in + region.bytes_out for region in self.regions)

    def add_to(self, counts: MutableMapping[str, int]) -> None:
        """Add to counts such as ``torch._dynamo.utils.counters["turbine_lite"]``."""
        counts["graphs"] += 1
        counts["executables"] += len(self.regions)
        counts["nodes native"] += self.native_calls
        counts["nodes eager"] += self.calls - self.native_calls
        counts["bytes crossing"] += self.bytes_crossing
        for reason in self.reasons:
            counts[f"eager {reason.op or 'region'}: {reason.kind}"] += 1


def compute_calls(gm: GraphModule) -> int:
    """The calls that compute something: neither views, nor sizes, nor items of results, nor what is computed once."""
    once = computed_once(gm.graph)
    return sum(computes(node) and node not in once for node in gm.graph.nodes)


def _bytes(nodes: Iterable[Node]) -> int:
    values = [node.meta.get("val") for node in nodes]
    return sum(numel_hint(value) * value.itemsize for value in values if isinstance(value, torch.Tensor))
