"""Verification: compiled graphs against the same graphs in eager, call by call.

Eager's call is the one that counts: it gets the caller's arguments, draws the random numbers and gives the results.
The compiled graph runs on copies, so not even a program that writes where it must not can do harm.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.utils import counters
from torch.fx import GraphModule

from turbine_lite.diagnostics.bisect import Culprit, narrow_down
from turbine_lite.diagnostics.compare import Difference, difference
from turbine_lite.diagnostics.dump import Dump
from turbine_lite.diagnostics.reproducer import write_reproducer
from turbine_lite.diagnostics.snapshot import copy_arguments
from turbine_lite.errors import VerificationError
from turbine_lite.graph.eager import as_captured, run_in_eager
from turbine_lite.graph.source import source_line
from turbine_lite.graph.support import op_name
from turbine_lite.graph.views import base_of
from turbine_lite.options import Options

__all__ = ["VerifiedGraph", "WatchedRegion"]

log = logging.getLogger("turbine_lite")

aten = torch.ops.aten

# Whatever is in their memory is right.
_UNINITIALISED = frozenset(
    {
        *(aten.empty.memory_format, aten.empty_like.default, aten.empty_strided.default, aten.empty_permuted.default),
        *(aten.new_empty.default, aten.new_empty_strided.default),
    }
)


class WatchedRegion:
    """A compiled region that, while ``watching``, is compared with eager and gives eager's results.

    Attributes:
        inputs: the arguments of the first call that differed, or None.
    """

    def __init__(self, region: GraphModule, run: Callable[..., Any]) -> None:
        self.region = region
        self.run = run
        self.watching = False
        self.inputs: list[Any] | None = None

    def __call__(self, *args: Any) -> Any:
        """Run with the region's arguments."""
        if not self.watching:
            return self.run(*args)
        inputs = copy_arguments(args)
        want = run_in_eager(self.region, *args)
        if self.inputs is None and _first_difference(self.region, self.run(*copy_arguments(inputs)), want):
            self.inputs = inputs
        return want


class VerifiedGraph:
    """A compiled graph that is compared with eager on its first call, and every ``options.verify_every``-th.

    After a difference it runs in eager, or raises, as ``options.verify`` says.

    Raises:
        VerificationError: a difference was found and ``options.verify`` is ``"error"``.
    """

    def __init__(
        self,
        gm: GraphModule,
        run: Callable[..., Any],
        regions: Sequence[WatchedRegion],
        options: Options,
        dump: Dump,
    ) -> None:
        self.gm = gm
        self.run: Callable[..., Any] | None = run
        self.regions = regions
        self.options = options
        self.dump = dump
        self.calls = 0

    def __call__(self, *args: Any) -> Any:
        """Run with the graph's arguments."""
        if self.run is None:
            return run_in_eager(self.gm, *args)
        call, self.calls = self.calls, self.calls + 1
        every = self.options.verify_every
        if call and not (every and call % every == 0):
            return self.run(*args)
        return self._compared(self.run, args)

    def _compared(self, run: Callable[..., Any], args: Sequence[Any]) -> Any:
        counters["turbine_lite"]["verified calls"] += 1
        before, generator = copy_arguments(args), torch.get_rng_state()
        want = run_in_eager(self.gm, *args)
        generator_after = torch.get_rng_state()
        copies = copy_arguments(before)
        torch.set_rng_state(generator)
        got = run(*copies)
        found = _first_difference(self.gm, got, want) or _changed_argument(copies, args)
        if found is None and not torch.equal(torch.get_rng_state(), generator_after):
            found = "the random number generator is in another state"
        if found is not None:
            counters["turbine_lite"]["verified calls that differ"] += 1
            torch.set_rng_state(generator)
            self._report(run, before, found)
        torch.set_rng_state(generator_after)
        return want

    def _report(self, run: Callable[..., Any], inputs: list[Any], found: str) -> None:
        self.run = None
        culprit = self._culprit(run, inputs)
        message = f"a compiled graph differs from eager: {found}"
        reproducer: Path | None = None
        if culprit is None:
            message += "; no operator differs when compiled alone on eager's values, so differences add up"
        else:
            message += f"\n  at fault: {_describe(culprit)}"
            reproducer = write_reproducer(culprit, self.options, self._directory(), message)
        if reproducer is not None:
            message += f"\n  reproduce with: python {reproducer}"
        if self.options.verify == "error":
            names = () if culprit is None else tuple(node.name for node in culprit.nodes)
            raise VerificationError(message, nodes=names, reproducer=str(reproducer) if reproducer else None)
        log.warning("turbine_lite runs a graph in eager from now on: %s", message)

    def _culprit(self, run: Callable[..., Any], inputs: list[Any]) -> Culprit | None:
        """Run the graph once more with eager's values going into each region, and search those that differ."""
        for region in self.regions:
            region.watching = True
        try:
            with as_captured():
                run(*copy_arguments(inputs))
        finally:
            for region in self.regions:
                region.watching = False
        for region in self.regions:
            if region.inputs is not None:
                culprit = narrow_down(region.region, region.inputs, self.options)
                if culprit is not None:
                    return culprit
        return None

    def _directory(self) -> Dump:
        if self.dump.enabled:
            return self.dump.subdirectory("verify")
        try:
            return Dump(Path(tempfile.mkdtemp(prefix="turbine-lite-verify-")))
        except OSError as error:
            log.warning("cannot write a reproducer: %s", error)
            return Dump(None)


def _first_difference(gm: GraphModule, got: Sequence[Any], want: Sequence[Any]) -> str | None:
    nodes = gm.graph.output_node().args[0]
    assert isinstance(nodes, (list, tuple))
    for index, (a, b, node) in enumerate(zip(got, want, nodes, strict=True)):
        if isinstance(b, torch.Tensor) and base_of(node).target not in _UNINITIALISED:
            found = difference(a, b)
            if found is not None:
                return f"result {index}: {found.text}"
        elif not isinstance(b, torch.Tensor) and a != b:
            return f"result {index}: {a} instead of {b}"
    return None


def _changed_argument(got: Sequence[Any], want: Sequence[Any]) -> str | None:
    for index, (a, b) in enumerate(zip(got, want, strict=True)):
        found: Difference | None = difference(a, b.detach()) if isinstance(b, torch.Tensor) else None
        if found is not None:
            return f"argument {index} afterwards: {found.text}"
    return None


def _describe(culprit: Culprit) -> str:
    last = culprit.nodes[-1]
    source = source_line(last)
    at = f" at {source}" if source else ""
    if len(culprit.nodes) == 1:
        return f"node {last.name} ({op_name(last)}){at}: {culprit.difference.text}"
    names = ", ".join(f"{node.name} ({op_name(node)})" for node in culprit.nodes)
    return f"the {len(culprit.nodes)} nodes {names}, the last{at}: {culprit.difference.text}"
