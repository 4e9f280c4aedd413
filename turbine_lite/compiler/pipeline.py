"""Torch-dialect MLIR -> VMFB, in the process that calls it.

The worker process and ``options={"compiler": "in-process"}`` both end here. Nothing in this module may import
torch: the worker must start fast and stay small.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from turbine_lite.compiler.stages import LLVM_STAGES, PHASES

__all__ = ["Diagnostic", "Request", "Response", "compile_module", "set_global_flags"]

_SEVERITIES = ("note", "warning", "error", "remark")


@dataclasses.dataclass(frozen=True)
class Request:
    """One module to compile. ``module`` is MLIR bytecode or text in the dialect ``input_type`` (IREE's name for it).

    ``flags`` are those of the compiler session; a worker has all of its flags from its start.

    With ``lower_only`` the work ends after ``torch-to-iree``, and ``vmfb`` is empty. With ``emit`` it ends after that
    stage, and ``vmfb`` is the module then, as bytecode or (``as_text``) text.
    """

    module: bytes
    flags: tuple[str, ...]
    lower_only: bool = False
    dump_stages: tuple[str, ...] = ()
    elide_constants: bool = True
    input_type: str = "torch"
    emit: str = "vmfb"
    as_text: bool = False

    def run(self) -> Response:
        """Compile it."""
        return compile_module(self)


@dataclasses.dataclass(frozen=True)
class Diagnostic:
    """One message of the compiler; ``text`` starts with ``file:line:column:`` where a location is known."""

    severity: str
    text: str


@dataclasses.dataclass(frozen=True)
class Response:
    """What became of a request: ``vmfb`` is None when ``failed_stage`` ("parse", "lower" or "compile") is set."""

    vmfb: bytes | None
    failed_stage: str | None
    diagnostics: tuple[Diagnostic, ...]
    stages: dict[str, str]
    seconds: dict[str, float]


def set_global_flags(flags: tuple[str, ...]) -> None:
    """Set flags that IREE accepts only process-wide. May be called once in a process."""
    if flags:
        from iree.compiler.api import ctypes_dl

        ctypes_dl._initializeGlobalCL("turbine-lite", *flags)


def compile_module(request: Request) -> Response:
    """Run ``torch-to-iree`` and IREE's standard pipeline over one module."""
    job = _Job(request)
    try:
        with job.opened() as invocation:
            vmfb = job.run(invocation)
    except ValueError as error:  # a flag that the compiler refuses
        job.diagnostics.append(Diagnostic("error", str(error)))
        vmfb, job.failed_stage = None, "flags"
    return Response(vmfb, job.failed_stage, tuple(job.diagnostics), job.stages, job.seconds)


class _Job:
    def __init__(self, request: Request) -> None:
        self.request = request
        self.failed_stage: str | None = None
        self.diagnostics: list[Diagnostic] = []
        self.stages: dict[str, str] = {}
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def opened(self) -> Iterator[Any]:
        from iree.compiler.api import ctypes_dl

        library = _library()
        # The callback object must outlive the invocation: the compiler calls it until the invocation is destroyed.
        callback = _DIAGNOSTIC_CALLBACK(self._on_diagnostic)
        with ctypes_dl.Session() as session, self._intermediates() as flags:
            input_type = (f"--iree-input-type={self.request.input_type}",) if self.request.input_type != "torch" else ()
            session.set_flags(*self.request.flags, *input_type, *flags)
            with session.invocation() as invocation:
                library.ireeCompilerInvocationEnableCallbackDiagnostics(invocation._inv_p, 0, callback, None)
                yield invocation

    @contextlib.contextmanager
    def _intermediates(self) -> Iterator[tuple[str, ...]]:
        """Flags that have LLVM's stages written; what was written is captured at the end."""
        wanted = [stage for stage in LLVM_STAGES if stage in self.request.dump_stages]
        if not wanted:
            yield ()
            return
        with tempfile.TemporaryDirectory(prefix="turbine-lite-llvm-") as directory:
            yield (f"--iree-hal-dump-executable-intermediates-to={directory}",)
            for stage in wanted:
                files = sorted(Path(directory).glob(f"*{LLVM_STAGES[stage]}"))
                self.stages[stage] = "\n".join(file.read_text(errors="replace") for file in files)

    def run(self, invocation: Any) -> bytes | None:
        from iree.compiler.api import ctypes_dl

        with self._stage("parse"):
            source = ctypes_dl.Source.wrap_buffer(invocation.session, self.request.module)
            parsed = invocation.parse_source(source)
        if not parsed:
            self.failed_stage = "parse"
            return None
        if self.request.input_type == "torch":
            with self._stage("lower"):
                lowered = invocation.execute_text_pass_pipeline("torch-to-iree")
            if not lowered:
                self.failed_stage = "lower"
                return None
        if self.request.lower_only:
            return b""
        self._capture("iree-input", invocation)
        if self.request.emit != "iree-input":
            with self._stage("compile"):
                compiled = self._compile(invocation)
            if not compiled:
                self.failed_stage = "compile"
                return None
        output = ctypes_dl.Output.open_membuffer()
        if self.request.emit == "vmfb":
            invocation.output_vm_bytecode(output)
        elif self.request.as_text:
            invocation.output_ir(output)
        else:
            invocation.output_ir_bytecode(output)
        return bytes(output.map_memory())

    def _compile(self, invocation: Any) -> bool:
        """Run to the end, with a stop after each phase whose IR is wanted."""
        library, handle = _library(), invocation._inv_p
        for phase in PHASES:
            if phase not in self.request.dump_stages:
                continue
            library.ireeCompilerInvocationSetCompileToPhase(handle, phase.encode())
            if not invocation.execute():
                return False
            self._capture(phase, invocation)
            library.ireeCompilerInvocationSetCompileFromPhase(handle, phase.encode())
        end = "end" if self.request.emit == "vmfb" else self.request.emit
        library.ireeCompilerInvocationSetCompileToPhase(handle, end.encode())
        return bool(invocation.execute())

    @contextlib.contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - start

    def _capture(self, stage: str, invocation: Any) -> None:
        if stage not in self.request.dump_stages:
            return
        from iree.compiler.api import ctypes_dl

        output = ctypes_dl.Output.open_membuffer()
        invocation.output_ir(output)
        text = bytes(output.map_memory()).decode(errors="replace")
        self.stages[stage] = elide_constants(text) if self.request.elide_constants else text

    def _on_diagnostic(self, severity: int, message: int, size: int, _user_data: Any) -> None:
        text = ctypes.string_at(message, size).decode(errors="replace")
        self.diagnostics.append(Diagnostic(_SEVERITIES[severity], text))


_DIAGNOSTIC_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)


@functools.cache
def _library() -> Any:
    """libIREECompiler with the signatures of the entry points that IREE's own Python binding leaves out."""
    from iree.compiler.api import ctypes_dl

    library = ctypes_dl._dylib
    for name in ("ireeCompilerInvocationSetCompileToPhase", "ireeCompilerInvocationSetCompileFromPhase"):
        function = getattr(library, name)
        function.argtypes, function.restype = [ctypes.c_void_p, ctypes.c_char_p], None
    enable = library.ireeCompilerInvocationEnableCallbackDiagnostics
    enable.argtypes = [ctypes.c_void_p, ctypes.c_int, _DIAGNOSTIC_CALLBACK, ctypes.c_void_p]
    enable.restype = None
    return library


_HEX_CONSTANT = re.compile(r'"0x[0-9A-Fa-f]{128,}"')
_RESOURCES = re.compile(r"\n\{-#.*?#-\}\s*\Z", re.DOTALL)


def elide_constants(text: str) -> str:
    """MLIR text without the bytes of large constants, for reading; such text no longer parses to the same program."""
    text = _RESOURCES.sub("\n// constants elided\n", text)
    return _HEX_CONSTANT.sub('"elided"', text)
