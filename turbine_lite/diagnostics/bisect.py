"""From a region whose compiled results are wrong to the smallest part of it that is wrong when compiled alone."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.fx import GraphModule, Interpreter, Node

from turbine_lite.compile_region import RegionBuild
from turbine_lite.diagnostics.compare import Difference, difference
from turbine_lite.diagnostics.dump import Dump
from turbine_lite.diagnostics.snapshot import copy_arguments
from turbine_lite.graph.eager import as_captured
from turbine_lite.graph.shrink import calls_of, shrink
from turbine_lite.graph.subgraph import Part, extract_part
from turbine_lite.options import Options

__all__ = ["Culprit", "narrow_down"]

log = logging.getLogger(__name__)


class Culprit(NamedTuple):
    """A part of a region that gives another result than eager.

    Attributes:
        nodes: its calls, in order. One, unless the fault needs several, as one of fusion does.
        part: the same as a graph module.
        inputs: values of its arguments for which it differs.
        expected: eager's results.
        difference: that of the first result that differs.
    """

    nodes: list[Node]
    part: Part
    inputs: list[Any]
    expected: list[torch.Tensor]
    difference: Difference


def narrow_down(region: GraphModule, inputs: Sequence[Any], options: Options) -> Culprit | None:
    """Find the part at fault by bisection; None if the region, compiled again, agrees with eager.

    Compiles about 2 log2(n) times for n operators.
    """
    search = _Search(region, inputs, options)
    calls = calls_of(region)
    if not calls or search.differs(calls) is None:
        return None
    return search.culprit(shrink(calls, lambda part: search.differs(part) is not None))


class _Recorder(Interpreter):
    """Runs a region in eager and keeps the value of each node."""

    def __init__(self, region: GraphModule) -> None:
        super().__init__(region, garbage_collect_values=False)
        self.values: dict[Node, Any] = {}

    def run_node(self, n: Node) -> Any:
        value = super().run_node(n)
        self.values[n] = value
        return value


class _Search:
    def __init__(self, region: GraphModule, inputs: Sequence[Any], options: Options) -> None:
        self.region = region
        self.options = dataclasses.replace(options, dump_dir=None)
        recorder = _Recorder(region)
        with as_captured():
            recorder.run(*inputs)
        self.values = recorder.values
        self.tried: dict[tuple[Node, ...], Difference | None] = {}

    def differs(self, nodes: Sequence[Node]) -> Difference | None:
        """The first difference of some calls, compiled alone and run on eager's values."""
        key = tuple(nodes)
        if key not in self.tried:
            self.tried[key] = self._differs(nodes)
        return self.tried[key]

    def _differs(self, nodes: Sequence[Node]) -> Difference | None:
        part = extract_part(self.region, nodes)
        try:
            executable = RegionBuild(part.gm, self.options, Dump(None)).finish()
            results = executable(*copy_arguments([self.values[node] for node in part.sources]))
        except Exception:  # what does not compile or run alone cannot be told to be wrong
            log.debug("a part of %d operators does not run alone", len(nodes), exc_info=True)
            return None
        differences = (difference(got, self.values[node]) for got, node in zip(results, part.results, strict=True))
        return next((found for found in differences if found is not None), None)

    def culprit(self, nodes: Sequence[Node]) -> Culprit:
        found = self.differs(nodes)
        assert found is not None
        part = extract_part(self.region, nodes)
        inputs = [self.values[node] for node in part.sources]
        return Culprit(list(nodes), part, inputs, [self.values[node] for node in part.results], found)
