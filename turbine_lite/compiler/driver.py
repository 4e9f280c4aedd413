"""One module in the torch dialect -> VMFB: attempts, from the fastest flags to milder ones."""

from __future__ import annotations

import dataclasses
import logging
import re

from turbine_lite.compiler.client import compile_in_worker
from turbine_lite.compiler.flags import FlagSet, Traits, flag_sets
from turbine_lite.compiler.pipeline import Diagnostic, Request, Response, compile_module
from turbine_lite.compiler.stages import chosen_stages
from turbine_lite.errors import CompilationError, CompilerCrashError, CompilerKilledError, CompilerTimeoutError
from turbine_lite.mlir.locations import NODE_FILE_PREFIX
from turbine_lite.options import Options

__all__ = ["Compiled", "check_compiling", "check_lowering", "compile_to_vmfb", "error_of", "failed_nodes"]

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Compiled:
    """A VMFB, the flags that made it, the IR of the stages that were asked for, and seconds per stage.

    ``by_chance`` says that a set of flags before might have done as well: the compiler was killed from outside.
    """

    vmfb: bytes
    flags: FlagSet
    stages: dict[str, str]
    seconds: dict[str, float]
    by_chance: bool = False


def compile_to_vmfb(module: bytes, options: Options, traits: Traits) -> Compiled:
    """Compile MLIR bytecode in the torch dialect.

    Raises:
        CompilationError: the module does not lower or compile with any set of flags; ``diagnostics`` holds what the
            compiler said to the first.
        CompilerCrashError, CompilerKilledError: the compiler died with every set of flags.
        CompilerTimeoutError: it took longer than ``options.compile_timeout``.
    """
    first_error: CompilationError | None = None
    was_killed = False
    sets = flag_sets(options, traits)
    for flags in sets:
        # Some passes never end on some programs, while the milder flags take a second.
        limit = (
            options.compile_timeout if flags is sets[-1] else min(options.compile_timeout, _patience(module, options))
        )
        try:
            response = _run(module, dataclasses.replace(options, compile_timeout=limit), flags)
        except (CompilerCrashError, CompilerKilledError, CompilerTimeoutError) as death:
            if isinstance(death, CompilerTimeoutError) and limit == options.compile_timeout:
                raise
            log.info("the %s flags failed: %s", flags.name, death.headline)
            first_error = first_error or death
            was_killed = was_killed or isinstance(death, CompilerKilledError)
            continue
        if response.vmfb is not None:
            return Compiled(response.vmfb, flags, response.stages, response.seconds, was_killed)
        error = error_of(response)
        # Lowering to IREE's input does not depend on the flags that differ between the sets.
        if response.failed_stage != "compile":
            raise error
        log.info("the %s flags failed: %s", flags.name, error.headline)
        first_error = first_error or error
    assert first_error is not None
    raise first_error


def _patience(module: bytes, options: Options) -> float:
    """Seconds that a program of this size does not take; a layer has about 4 KB and compiles in less than 2 s.

    In the background, others may have most of the CPUs, and nobody waits.
    """
    return (60 + len(module) / 1000) * (10 if options.compile == "background" else 1)


def check_lowering(module: bytes, options: Options, traits: Traits) -> None:
    """Lower MLIR bytecode in the torch dialect to IREE's input and throw the result away: a cheap probe.

    Raises:
        CompilationError: it does not lower.
    """
    response = _run(module, options, flag_sets(options, traits)[0], lower_only=True)
    if response.vmfb is None:
        raise error_of(response)


def check_compiling(module: bytes, options: Options, traits: Traits) -> None:
    """Compile MLIR bytecode in the torch dialect with the mildest flags and throw the result away.

    Raises:
        CompilationError: it does not compile; also where the compiler dies or takes too long.
    """
    response = _run(module, options, flag_sets(options, traits)[-1])
    if response.vmfb is None:
        raise error_of(response)


def _run(module: bytes, options: Options, flags: FlagSet, *, lower_only: bool = False) -> Response:
    stages = chosen_stages(options.dump_stages) if options.dump_dir else ()
    if options.compiler == "in-process":
        return compile_module(Request(module, flags.session, lower_only, stages, not options.dump_weights))
    request = Request(module, (), lower_only, stages, not options.dump_weights)
    in_background = options.compile == "background"
    return compile_in_worker(request, flags.of_process(), options.compile_timeout, in_background=in_background)


def error_of(response: Response, who: str = "IREE's compiler") -> CompilationError:
    """What a response that has no program says."""
    errors = [d for d in response.diagnostics if d.severity == "error"] or list(response.diagnostics)
    what = {"flags": "take its flags", "parse": "read the program", "lower": "lower the program"}
    headline = f"{who} could not {what.get(response.failed_stage or '', 'compile the program')}"
    if errors:
        headline += f": {_first_line(errors[0])}"
    stage = "lower" if response.failed_stage in ("parse", "lower") else "compile"
    text = "\n".join(d.text for d in errors)
    return CompilationError(headline, stage=stage, diagnostics=text, stages=response.stages)


def _first_line(diagnostic: Diagnostic) -> str:
    line = diagnostic.text.splitlines()[0] if diagnostic.text else "no diagnostic"
    return line if len(line) <= 300 else line[:300] + "..."


_NODE_LOCATION = re.compile(rf"^{NODE_FILE_PREFIX}([^:\n]+):\d+:\d+: (.*)$", re.MULTILINE)


def failed_nodes(error: CompilationError) -> dict[str, str]:
    """From the name of each FX node that the diagnostics blame to what they say about it."""
    blamed: dict[str, str] = {}
    for name, text in _NODE_LOCATION.findall(error.diagnostics):
        blamed.setdefault(name, text)
    return blamed
