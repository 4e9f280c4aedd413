"""The exceptions that turbine_lite raises.

The first line of every message is complete in itself, since Dynamo prints it as its headline; what follows is
the user's source line, the compiler's diagnostic, where the IR was saved and the command that reproduces it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from turbine_lite.graph.support import Reason

__all__ = [
    "CompilationError",
    "CompilerCrashError",
    "CompilerKilledError",
    "CompilerTimeoutError",
    "ExecutionError",
    "OptionError",
    "PackageError",
    "TurbineLiteError",
    "UnsupportedError",
    "VerificationError",
]


class TurbineLiteError(RuntimeError):
    """Base of all errors that turbine_lite raises on purpose."""


class OptionError(TurbineLiteError, ValueError):
    """An option or mode has an unknown name, a wrong type or a value that is not allowed."""


class UnsupportedError(TurbineLiteError):
    """The graph, or an input of it, is of a kind that turbine_lite does not take."""


class PackageError(TurbineLiteError):
    """A file is no package, damaged, or has no program that runs here."""


class CompilationError(TurbineLiteError):
    """A graph could not be imported, lowered or compiled.

    Attributes:
        stage: ``"import"``, ``"flags"``, ``"lower"`` or ``"compile"``.
        reasons: why, one entry per operator at fault, empty when no operator could be named.
        diagnostics: what the compiler said, verbatim.
        dump_dir: directory that holds the saved IR, or None.
        command: shell command that reproduces the failure, or None.
        stages: the IR of the stages that were asked for and reached.
    """

    def __init__(
        self,
        headline: str,
        *,
        stage: str,
        reasons: tuple[Reason, ...] = (),
        diagnostics: str = "",
        dump_dir: str | None = None,
        command: str | None = None,
        stages: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.headline = headline
        self.stage = stage
        self.reasons = reasons
        self.diagnostics = diagnostics
        self.dump_dir = dump_dir
        self.command = command
        self.stages = stages
        super().__init__(self._text())

    def _text(self) -> str:
        lines = [self.headline]
        lines += [f"  at {reason.source}" for reason in self.reasons if reason.source]
        if self.diagnostics:
            lines += ["diagnostics:", *("  " + line for line in self.diagnostics.rstrip().splitlines()[:40])]
        if self.dump_dir:
            lines.append(f"IR saved in: {self.dump_dir}")
        if self.command:
            lines.append(f"reproduce with: {self.command}")
        if not self.dump_dir:
            lines.append("set TURBINE_LITE_DUMP=<directory> to save the IR and a reproducing command")
        return "\n".join(lines)

    def located(self, *, dump_dir: str | None, command: str | None) -> CompilationError:
        """The same error with the place of the saved IR and the reproducing command filled in."""
        return type(self)(
            self.headline,
            stage=self.stage,
            reasons=self.reasons,
            diagnostics=self.diagnostics,
            dump_dir=dump_dir,
            command=command,
            stages=self.stages,
        )


class CompilerCrashError(CompilationError):
    """The compiler process brought itself down (a segfault, an abort) while it worked on the graph."""


class CompilerKilledError(CompilationError):
    """The compiler process was killed from outside: by a person, or by the system when memory ran out."""


class CompilerTimeoutError(CompilationError):
    """The compiler took longer than ``compile_timeout`` seconds and was killed."""


class ExecutionError(TurbineLiteError):
    """The IREE runtime reported an error while a compiled graph ran."""


class VerificationError(TurbineLiteError):
    """With ``verify="error"``: a compiled graph gave another result than eager.

    Attributes:
        nodes: names of the FX nodes of the smallest part that differs when compiled alone; empty if none does.
        reproducer: path of a script that shows it, or None.
    """

    def __init__(self, message: str, *, nodes: tuple[str, ...], reproducer: str | None) -> None:
        self.nodes = nodes
        self.reproducer = reproducer
        super().__init__(message)
