"""``mode="max-autotune"``: build several versions of a graph and let the first call choose.

What differs between them: which operators are left to kernels of PyTorch's libraries, IREE's driver, the compiler's
flags. The last one is the graph in eager, so that nothing becomes slower by being compiled.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import logging
import operator
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch.fx import GraphModule, Node

from turbine_lite.compile_graph import GraphBuild, compile_graph
from turbine_lite.compiler.client import most_at_once
from turbine_lite.compiler.profiles import PROFILES
from turbine_lite.decisions import decision_key, keep_decision, recall_decision
from turbine_lite.diagnostics.dump import open_dump
from turbine_lite.errors import TurbineLiteError
from turbine_lite.graph.eager import run_in_eager
from turbine_lite.graph.report import GraphReport, compute_calls
from turbine_lite.graph.support import is_own_operator, is_symbolic_scalar, reason_for
from turbine_lite.options import Options
from turbine_lite.progress import progress_bar
from turbine_lite.runtime.tuned import Tuned, Version

__all__ = ["compile_fastest"]

log = logging.getLogger("turbine_lite")

_NO_REGIONS = 1 << 30
_EAGER = "eager"


def compile_fastest(gm: GraphModule, options: Options, kind: str) -> Callable[[list[Any]], Any]:
    """What :func:`~turbine_lite.compile_graph.compile_graph` does, in several ways, of which the fastest stays.

    Which one that is, is kept on disk (``decisions.py``); a later process builds that one alone.

    Graphs that cannot be run twice on the same arguments (custom operators, collectives) are compiled in one way, and
    so are all with ``options.verify``.

    Raises:
        CompilationError, UnsupportedError: only with ``options.fallback == "error"``.
    """
    if options.verify or any(_may_have_effects(node) for node in gm.graph.nodes):
        return compile_graph(gm, options, kind)
    ways = dict(_ways(options))
    key = decision_key(gm, options, kind)
    known = recall_decision(key, (*ways, _EAGER))
    if known is not None:
        version = _as_chosen_before(gm, ways, known, options, kind)
        if version is not None:
            return version.run
    return Tuned(
        _versions(gm, ways, options, kind),
        options.autotune_seconds,
        functools.partial(keep_decision, key),
        show=options.progress,
    )


def _as_chosen_before(
    gm: GraphModule, ways: Mapping[str, Options], name: str, options: Options, kind: str
) -> Version | None:
    """The version of that name, counted among what runs; None if it cannot be built any more."""
    if name == _EAGER:
        version = _eager(gm, kind)
    else:
        try:
            run = GraphBuild(gm, ways[name], kind, open_dump(options.dump_dir, kind)).finish()
        except TurbineLiteError:
            return None
        version = Version(name, run, run.report)
    log.info("max-autotune: %s, as chosen before", name)
    version.count()
    return version


def _versions(gm: GraphModule, ways: Mapping[str, Options], options: Options, kind: str) -> list[Version]:
    """All that can be built in time; eager is the last.

    Of the next ones the compiler has begun when one is finished, as many as it works on at once.
    """
    versions: list[Version] = []
    begun: deque[tuple[str, GraphBuild | TurbineLiteError]] = deque()
    builds = _begin_all(gm, ways, options, kind)
    with progress_bar("building versions", len(ways), show=options.progress) as progress:
        while True:
            begun.extend(itertools.islice(builds, max(1, most_at_once() - len(begun))))
            if not begun:
                break
            name, build = begun.popleft()
            try:
                if not isinstance(build, GraphBuild):
                    raise build
                run = build.finish()
            except TurbineLiteError:
                if not versions:
                    raise
                continue
            finally:
                progress.update()
            if run.report.regions or build.has_kernels:  # else it is eager once more
                versions.append(Version(name, run, run.report))
    return [*versions, _eager(gm, kind)]


def _begin_all(
    gm: GraphModule, ways: Mapping[str, Options], options: Options, kind: str
) -> Iterator[tuple[str, GraphBuild | TurbineLiteError]]:
    """Begin to build the versions, one each time the next is asked for."""
    deadline = time.monotonic() + options.autotune_seconds
    dump = open_dump(options.dump_dir, kind)
    has_kernels = False
    for number, (name, changed) in enumerate(ways.items()):
        if number and time.monotonic() > deadline:
            log.info("max-autotune: no time for %s (option autotune_seconds)", name)
            continue
        if number and changed.extern == "none" and options.extern == "auto" and not has_kernels:
            continue  # the same once more
        directory = dump.subdirectory(name.replace(" ", "_")) if dump.enabled else dump
        try:
            build = GraphBuild(gm, changed, kind, directory)
        except TurbineLiteError as error:
            yield name, error
        else:
            has_kernels = has_kernels or build.has_kernels
            yield name, build


def _ways(options: Options) -> Iterator[tuple[str, Options]]:
    """Names of versions and their options; the user's own choice of an option stays."""
    externs = ("auto", "none") if options.extern == "auto" else (options.extern,)
    drivers = ("local-sync", "local-task") if options.driver == "auto" else (options.driver,)
    if torch.get_num_threads() == 1:
        drivers = drivers[:1]
    # A compiler in this process refuses some of the flags.
    profiles = PROFILES if options.compiler == "worker" else {"default": ()}
    for profile, flags in profiles.items():
        for extern in externs:
            for driver in drivers:
                changed = dataclasses.replace(
                    options, extern=extern, driver=driver, compile_flags=(*flags, *options.compile_flags)
                )
                yield f"extern={extern} {driver} {profile}", changed
    if options.extern == "auto":
        yield "kernels alone", dataclasses.replace(options, extern="all", min_block_size=_NO_REGIONS)


def _may_have_effects(node: Node) -> bool:
    """Whether running a call twice may differ from running it once, in more than random numbers."""
    if node.op != "call_function" or node.target is operator.getitem or is_symbolic_scalar(node.meta.get("val")):
        return node.op == "call_module"
    target = node.target
    if not is_own_operator(target):
        return True
    return target._schema.is_mutable or (node.is_impure() and torch.Tag.nondeterministic_seeded not in target.tags)


def _eager(gm: GraphModule, kind: str) -> Version:
    nodes = [node for node in gm.graph.nodes if node.op == "call_function"]
    reason = (
        (reason_for(nodes[0], "slower", "the whole graph is faster in eager (mode max-autotune)"),) if nodes else ()
    )
    run = make_boxed_func(functools.partial(run_in_eager, gm))
    return Version(_EAGER, run, GraphReport(kind, compute_calls(gm), (), reason))
