"""Torch-dialect MLIR -> any of the dialects that programs are exported in; MLIR of other people's -> a program."""

from __future__ import annotations

from typing import TypeVar

from turbine_lite.compiler.client import Work, compile_in_worker
from turbine_lite.compiler.driver import Compiled, error_of
from turbine_lite.compiler.flags import Traits, flag_sets
from turbine_lite.compiler.foreign import Preparation, Prepared
from turbine_lite.compiler.lowering import PIPELINES, Composite, Lowering
from turbine_lite.compiler.pipeline import Request, Response
from turbine_lite.errors import CompilationError
from turbine_lite.options import Options

__all__ = [
    "DIALECTS",
    "INPUT_TYPES",
    "IREE_DIALECTS",
    "compile_foreign",
    "lower_to",
    "prepare_foreign",
    "traits_of_foreign",
]

_T = TypeVar("_T")

# What IREE's passes lead to; the others are torch-mlir's.
IREE_DIALECTS = ("iree-input", "flow", "vmfb")

DIALECTS = (*PIPELINES, *IREE_DIALECTS)

# From names of dialects to IREE's names of what it takes.
INPUT_TYPES = {
    "auto": "auto",
    "torch": "torch",
    "torch-backend": "torch",
    "onnx": "onnx",
    "stablehlo": "stablehlo",
    "tosa": "tosa",
    "linalg-on-tensors": "auto",
    "iree-input": "none",
}


def lower_to(
    module: bytes,
    dialect: str,
    options: Options,
    traits: Traits,
    *,
    composites: tuple[Composite, ...] = (),
    as_text: bool = False,
) -> bytes:
    """Lower bytecode of the torch dialect to one of :data:`DIALECTS`; bytecode, text or (``vmfb``) a program.

    Raises:
        CompilationError: some operator has no lowering, see ``diagnostics``; or the compiler died.
    """
    if dialect == "vmfb":
        return compile_foreign(module, "torch", options, traits).vmfb
    who = "IREE's compiler" if dialect in IREE_DIALECTS else "torch-mlir"
    if dialect in IREE_DIALECTS:
        flags = flag_sets(options, traits)[0]
        response = _run(Request(module, (), emit=dialect, as_text=as_text), options, flags.of_process())
    else:
        response = _run(Lowering(module, dialect, composites, as_text), options)
    if response.vmfb is None:
        raise error_of(response, who)
    return response.vmfb


def prepare_foreign(module: bytes, options: Options) -> Prepared:
    """Have a look at MLIR (text or bytecode), and make it fit to be called.

    Raises:
        CompilationError: it is no MLIR that the compiler knows, or its functions take what cannot be passed.
    """
    prepared = _run(Preparation(module), options)
    if prepared.module is None:
        raise error_of(Response(None, "parse", prepared.diagnostics, {}, {}))
    return prepared


def traits_of_foreign(prepared: Prepared) -> Traits:
    """What its flags depend on; of what is not known, the worst."""
    return Traits(prepared.keep_f64, prepared.dynamic, batched_matmul=True, skips_elements=True)


def compile_foreign(module: bytes, dialect: str, options: Options, traits: Traits) -> Compiled:
    """Compile MLIR in a dialect of :data:`INPUT_TYPES`.

    Raises:
        CompilationError: IREE cannot compile it, with any set of flags.
    """
    input_type = INPUT_TYPES[dialect]
    first: CompilationError | None = None
    for flags in flag_sets(options, traits):
        try:
            response = _run(Request(module, (), input_type=input_type), options, flags.of_process())
            if response.vmfb is not None:
                return Compiled(response.vmfb, flags, {}, response.seconds)
            raise error_of(response)
        except CompilationError as error:
            first = first or error
    assert first is not None
    raise first


def _run(request: Work[_T], options: Options, flags: tuple[str, ...] = ()) -> _T:
    return compile_in_worker(request, flags, options.compile_timeout)
