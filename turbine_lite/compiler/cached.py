"""Compiling what was not compiled before: in this process (``memo.py``), or by any on this machine (``cache.py``).

What the compiler refuses is kept, too, so that no later process asks it again. Failures by chance are not kept: a
compiler that died, was killed or took too long.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from turbine_lite.compiler import memo
from turbine_lite.compiler.cache import CacheDirectory, Entry
from turbine_lite.compiler.cache_key import CacheKey, cache_key
from turbine_lite.compiler.cache_miss import Nearest, keys_in, nearest_entry
from turbine_lite.compiler.driver import Compiled, check_compiling, check_lowering, compile_to_vmfb
from turbine_lite.compiler.flags import FlagSet, Traits, flag_sets
from turbine_lite.compiler.parallel import finished, start
from turbine_lite.errors import CompilationError
from turbine_lite.mlir.importer import ImportedModule
from turbine_lite.options import Options

__all__ = ["Lookup", "check_cached", "look_up", "start_compiling"]

log = logging.getLogger("turbine_lite")

_PIPELINE = "torch-to-iree, iree"

# What is being compiled now, by the digest of its key.
_started: dict[str, Future[Compiled]] = {}
_started_lock = threading.Lock()


def start_compiling(module: ImportedModule, options: Options, traits: Traits) -> Future[Compiled]:
    """What :func:`~turbine_lite.compiler.driver.compile_to_vmfb` returns or raises, from where it is known.

    Compilations go on beside each other, and beside the caller; of equal programs there is one. The IR of stages is
    never known.
    """
    key = _key(module, options, traits, _PIPELINE)

    def compile_program() -> Compiled:
        compiled = memo.get(key)
        if compiled is None:
            compiled = _recall_or_compile(key, module, options, traits)
            memo.put(key, compiled)
        return compiled

    if options.compiler == "in-process" or memo.get(key) is not None:
        return finished(compile_program)
    with _started_lock:
        future = _started.get(key.digest)
        if future is None:
            future = _started[key.digest] = start(compile_program)
            future.add_done_callback(lambda _: _started.pop(key.digest, None))
    return future


def _recall_or_compile(key: CacheKey, module: ImportedModule, options: Options, traits: Traits) -> Compiled:
    entry = _recall(key, module, options)
    if entry is None:
        return _keep(key, module, options, lambda: compile_to_vmfb(module.bytecode, options, traits))
    known = Compiled(entry.vmfb, _flags_of(entry), {}, dict(entry.meta["seconds"]))
    return _verified(key, known, module, options, traits) if options.cache_verify else known


@dataclasses.dataclass(frozen=True)
class Lookup:
    """What is known of a program before it is compiled.

    Attributes:
        digest: its name in the cache.
        found: "memory" (compiled by this process), "disk", "refused" (the compiler cannot do it), "nowhere" or "off".
        nearest: where it is nowhere, the entry on disk that is most like it, if there is any.
    """

    digest: str
    found: str
    nearest: Nearest | None = None


def look_up(module: ImportedModule, options: Options, traits: Traits) -> Lookup:
    """Where the program of a module would come from."""
    key = _key(module, options, traits, _PIPELINE)
    if memo.get(key) is not None:
        return Lookup(key.digest, "memory")
    if not options.cache:
        return Lookup(key.digest, "off")
    try:
        entry = _recall(key, module, options)
    except CompilationError:
        return Lookup(key.digest, "refused")
    if entry is not None:
        return Lookup(key.digest, "disk")
    return Lookup(key.digest, "nowhere", nearest_entry(key, keys_in(_directory(options))))


def check_cached(module: ImportedModule, options: Options, traits: Traits, *, compile_too: bool) -> None:
    """Raise what a probe raises, from where it is known; see ``check_lowering`` and ``check_compiling``."""
    key = _key(module, options, traits, f"{'mild' if compile_too else 'torch-to-iree'}, check")
    if _recall(key, module, options) is None:
        check = check_compiling if compile_too else check_lowering

        def passed() -> Compiled:
            check(module.bytecode, options, traits)
            return Compiled(b"", flag_sets(options, traits)[0], {}, {})

        _keep(key, module, options, passed)


def _key(module: ImportedModule, options: Options, traits: Traits, purpose: str) -> CacheKey:
    return cache_key(
        program=module.fingerprint(),
        calling_convention=module.calling_convention(),
        purpose=purpose,
        flag_sets=flag_sets(options, traits),
        compiler=options.compiler,
        tag=options.cache_tag,
    )


def _recall(key: CacheKey, module: ImportedModule, options: Options) -> Entry | None:
    """The entry of a program.

    Raises:
        CompilationError: the entry says that there is none.
    """
    if not options.cache:
        return None
    entry = _directory(options).get(key.digest)
    _log_lookup(key, options, entry)
    failure = None if entry is None else entry.meta.get("failure")
    if failure is None:
        return entry
    # Diagnostics name nodes, which another graph of the same program may call otherwise.
    if failure["nodes"] == module.fingerprint(locations=True):
        raise CompilationError(failure["headline"], stage=failure["stage"], diagnostics=failure["diagnostics"])
    _directory(options).remove(key.digest)
    return None


def _log_lookup(key: CacheKey, options: Options, entry: Entry | None) -> None:
    if not log.isEnabledFor(logging.DEBUG):  # looking at all entries takes a while
        return
    log.debug("cache: %s %s (%s)", "miss" if entry is None else "hit", key.digest[:16], key)
    if entry is None:
        nearest = nearest_entry(key, keys_in(_directory(options)))
        log.debug("cache: %s", "no other entry" if nearest is None else f"the nearest entry, {nearest}")


def _keep(key: CacheKey, module: ImportedModule, options: Options, compile_program: Callable[[], Compiled]) -> Compiled:
    meta: dict[str, Any] = {"key": dict(key.values)}
    try:
        compiled = compile_program()
    except CompilationError as error:
        if options.cache and type(error) is CompilationError and error.stage in ("lower", "compile"):
            meta["failure"] = {
                "headline": error.headline,
                "stage": error.stage,
                "diagnostics": error.diagnostics,
                "nodes": module.fingerprint(locations=True),
            }
            _directory(options).put(key.digest, Entry(b"", meta))
        raise
    if options.cache and not compiled.by_chance:
        meta |= {"flags": dataclasses.asdict(compiled.flags), "seconds": compiled.seconds}
        _directory(options).put(key.digest, Entry(compiled.vmfb, meta))
    return compiled


def _verified(key: CacheKey, known: Compiled, module: ImportedModule, options: Options, traits: Traits) -> Compiled:
    """The program compiled again, which is what counts if the one that was kept is another."""
    compiled = compile_to_vmfb(module.bytecode, options, traits)
    if compiled.vmfb != known.vmfb:
        log.warning("cache: %s is not what the compiler makes now (option cache_verify); replaced", key.digest)
        _directory(options).remove(key.digest)
        _keep(key, module, options, lambda: compiled)
    return compiled


def _directory(options: Options) -> CacheDirectory:
    return CacheDirectory(limit=options.cache_bytes)


def _flags_of(entry: Entry) -> FlagSet:
    flags = entry.meta["flags"]
    return FlagSet(flags["name"], tuple(flags["session"]), tuple(flags["process_only"]))


def _forget_in_child() -> None:
    # What was started is nobody's to finish in the child of a fork.
    global _started_lock
    _started_lock = threading.Lock()
    _started.clear()


os.register_at_fork(after_in_child=_forget_in_child)
