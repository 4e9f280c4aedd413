"""Which operators are to blame for a region that does not compile."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Container, Iterator, Sequence

import torch
from torch.fx import GraphModule, Node

from turbine_lite.compile_region import prepare
from turbine_lite.compiler.cached import check_cached
from turbine_lite.compiler.driver import failed_nodes
from turbine_lite.errors import CompilationError, CompilerKilledError, CompilerTimeoutError, UnsupportedError
from turbine_lite.graph.shrink import calls_of, shrink
from turbine_lite.graph.subgraph import extract_part
from turbine_lite.graph.support import op_name, tensors_of
from turbine_lite.mlir.importer import import_region
from turbine_lite.options import Options

__all__ = ["Blame", "call_key"]

log = logging.getLogger(__name__)

# Compiling parts of a graph to find what fails may take this long, or this many times what compiling all of it took.
_SECONDS = 60.0
_TIMES = 4.0

# What makes two calls alike for the compiler: operator, dtypes and ranks of the tensors, other arguments.
CallKey = tuple[object, ...]


def call_key(node: Node) -> CallKey:
    """The key of a call."""
    constants = torch.fx.map_arg((node.args, node.kwargs), lambda n: None)
    return (node.target, repr(constants), *((tensor.dtype, tensor.dim()) for tensor in tensors_of(node)))


class _OutOfTimeError(Exception):
    """The search has taken all the time that it may."""


class Blame:
    """The search for the calls of one graph that compilations failed for, and what was learned on the way.

    Attributes:
        found: from a call at fault to what the compiler says of it: calls like it need not be tried again.
    """

    def __init__(self, options: Options) -> None:
        self.found: dict[CallKey, str] = {}
        self._options = options
        self._compile_alone: set[CallKey] = set()
        self._spent = 0.0
        self._limit = _SECONDS

    def search(self, region: GraphModule, error: CompilationError, seconds: float) -> bool:
        """Add the calls at fault for a failed compilation to ``found``; False if none can be named.

        The diagnostics name nodes most of the time: all of a fused kernel, of which one may be at fault. Where they
        name none, or none that fails alone, each distinct call is tried alone. What fails only together with others
        is found by bisection. Not for longer than a minute, or four times the ``seconds`` that the compilation took.

        A call may have been found before, by a region beside this one that was cut from the same graph. Compiling
        again comes to an end nevertheless: each call found leaves the region.
        """
        self._limit = max(self._limit, _TIMES * seconds)
        try:
            blamed = self._blamed(region, error)
        except _OutOfTimeError:
            log.info("no more time to look for the operators at fault")
            return False
        self.found.update(blamed)
        return bool(blamed)

    def _blamed(self, region: GraphModule, error: CompilationError) -> dict[CallKey, str]:
        texts = failed_nodes(error) | {reason.node: reason.text for reason in error.reasons if reason.node}
        named = {call_key(node): texts[node.name] for node in _calls(region) if node.name in texts}
        if error.stage == "import" or (named and error.stage == "lower"):
            return named
        if error.stage == "flags" or isinstance(error, (CompilerTimeoutError, CompilerKilledError)):
            return {}  # no operator's fault, or one that costs as much again to find
        compile_too = error.stage == "compile"
        blamed = self._failing_alone(region, named, compile_too=compile_too)
        if not blamed and not named:
            blamed = self._failing_alone(region, None, compile_too=compile_too)
        if not blamed and compile_too:
            blamed = self._failing_together(region, error)
        return blamed or named

    def _failing_alone(
        self, region: GraphModule, among: Container[CallKey] | None, *, compile_too: bool
    ) -> dict[CallKey, str]:
        blamed: dict[CallKey, str] = {}
        for node in _calls(region):
            key = call_key(node)
            if key in blamed or key in self._compile_alone or not (among is None or key in among):
                continue
            text = self._failure_of(region, [node], compile_too=compile_too)
            if text is not None:
                blamed[key] = text
            elif compile_too:
                self._compile_alone.add(key)
        return blamed

    def _failing_together(self, region: GraphModule, error: CompilationError) -> dict[CallKey, str]:
        """The last of a few calls that do not compile as one program."""

        def fails(nodes: Sequence[Node]) -> bool:
            return self._failure_of(region, nodes, compile_too=True) is not None

        calls = list(_calls(region))
        if len(calls) < 2 or not fails(calls):
            return {}
        return {call_key(shrink(calls, fails)[-1]): error.headline}

    def _failure_of(self, region: GraphModule, nodes: Sequence[Node], *, compile_too: bool) -> str | None:
        if self._spent > self._limit:
            raise _OutOfTimeError
        log.debug("trying %d of the calls: ... %s", len(nodes), op_name(nodes[-1]))
        started = time.monotonic()
        options = dataclasses.replace(
            self._options,
            dump_dir=None,
            compile_timeout=min(self._options.compile_timeout, max(1.0, self._limit - self._spent)),
        )
        try:
            gm, _, traits = prepare(extract_part(region, nodes).gm)
            check_cached(import_region(gm), options, traits, compile_too=compile_too)
        except UnsupportedError:
            return None
        except CompilerTimeoutError as error:
            raise _OutOfTimeError from error
        except CompilationError as error:
            return error.headline
        finally:
            self._spent += time.monotonic() - started
        return None


def _calls(region: GraphModule) -> Iterator[Node]:
    """What can be blamed: an item of a result runs where its producer does, so blaming it would move nothing."""
    return (node for node in calls_of(region) if "val" in node.meta)
