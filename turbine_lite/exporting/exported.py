"""``export`` and what it returns."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from turbine_lite.compiler.dialects import (
    DIALECTS,
    IREE_DIALECTS,
    compile_foreign,
    lower_to,
    prepare_foreign,
    traits_of_foreign,
)
from turbine_lite.errors import OptionError
from turbine_lite.exporting.capture import Captured, EntryPoint, InputSpec, capture
from turbine_lite.exporting.program import Program, build_program
from turbine_lite.options import Options
from turbine_lite.runtime.checks import check_arguments, check_sizes
from turbine_lite.runtime.loaded import LoadedProgram

__all__ = ["EntryPoint", "ExportedFunction", "ExportedModule", "export"]

_WEIGHTS = ("embedded", "external")
_MAIN = "main"


def export(
    program: Any,
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    dialect: str = "stablehlo",
    dynamic_shapes: Any = None,
    weights: str = "embedded",
    entry_points: Mapping[str, EntryPoint] | None = None,
    options: dict[str, Any] | None = None,
) -> ExportedModule:
    """Export a program as MLIR, for inference.

    The arguments of a function in it are first the weights that are arguments, then the tensors and numbers of the
    user's, flattened. Its results are first the new values of what the program writes (buffers, such as caches, and
    inputs), then what it returns, flattened. All are dense and row-major.

    Args:
        program: a module, a function, a TorchScript module, or a ``torch.export.ExportedProgram`` (which needs no
            ``args``).
        args: example arguments.
        kwargs: example arguments by name.
        dialect: ``"torch"`` (as imported), ``"torch-backend"``, ``"linalg-on-tensors"``, ``"tosa"``, ``"stablehlo"``,
            ``"iree-input"``, ``"flow"`` or ``"vmfb"`` (a program for IREE's runtime).
        dynamic_shapes: as for ``torch.export.export``.
        weights: ``"embedded"`` as constants, but for those that the program writes and those of uint8; or
            ``"external"``: all are arguments.
        entry_points: functions of the program by the names they get, in place of ``args``. They share weights, and
            what they write.
        options: fields of :class:`turbine_lite.Options`: ``target_cpu``, ``compile_flags`` and others that matter to
            IREE's dialects.

    Raises:
        OptionError: an unknown dialect, or another option.
        UnsupportedError: the program is of another kind, or an argument of a type that MLIR does not have.
        CompilationError: an operator cannot be imported or lowered to the dialect.
        Exception: what ``torch.export.export`` raises.
    """
    if dialect not in DIALECTS:
        raise OptionError(f"unknown dialect {dialect!r}; known: {', '.join(DIALECTS)}")
    if weights not in _WEIGHTS:
        raise OptionError(f"weights are {' or '.join(_WEIGHTS)}, not {weights!r}")
    if entry_points is not None and (args or kwargs or dynamic_shapes):
        raise OptionError("arguments and dynamic_shapes belong to the entry points, where there are any")
    chosen = Options.resolve(options, None)
    entries = entry_points or {_MAIN: EntryPoint("forward", args, kwargs or {}, dynamic_shapes)}
    captured = {name: capture(program, entry) for name, entry in entries.items()}
    built = build_program(captured, embed=weights == "embedded", for_iree=dialect in IREE_DIALECTS)
    return ExportedModule(built, captured, dialect, chosen)


@dataclasses.dataclass(frozen=True)
class ExportedFunction:
    """A function of an exported program.

    Attributes:
        name: its name in the module.
        weights: names of the weights that are its first arguments, in order.
        input_specs: the user's inputs, which follow.
        writes: names of the weights and inputs whose new values are its first results, in order.
    """

    name: str
    weights: tuple[str, ...]
    input_specs: tuple[InputSpec, ...]
    writes: tuple[str, ...]


class ExportedModule:
    """A program as MLIR.

    Attributes:
        dialect: what it is in.
        weights: those that are arguments, by name, in the order of the arguments (of several entry points: of the
            first, then what others have beside). The values are those at the time of the export; what the program
            writes is a copy, which :meth:`run` writes.
        entry_points: its functions by name.
    """

    def __init__(self, program: Program, captured: Mapping[str, Captured], dialect: str, options: Options) -> None:
        self.dialect = dialect
        self._program = program
        self._captured = captured
        self._options = options
        self._bytecode: bytes | None = None
        self._loaded: LoadedProgram | None = None
        written = {weight for entry in captured.values() for weight in entry.state}
        values = {name: value for entry in captured.values() for name, value in entry.weights.items()}
        names = dict.fromkeys(name for arguments in program.arguments.values() for name in arguments)
        self.weights = {name: values[name].clone() if name in written else values[name] for name in names}
        self.entry_points = {
            name: ExportedFunction(name, program.arguments[name], entry.inputs, entry.write_names)
            for name, entry in captured.items()
        }

    @property
    def input_specs(self) -> tuple[InputSpec, ...]:
        """The inputs of ``main``, or of the first entry point."""
        return self.entry_points[self._main].input_specs

    @property
    def _main(self) -> str:
        return _MAIN if _MAIN in self.entry_points else next(iter(self.entry_points))

    def mlir_module(self) -> str:
        """The module as text, complete with its constants, without locations.

        Raises:
            OptionError: a VMFB is no text.
            CompilationError: an operator has no lowering to the dialect.
        """
        if self.dialect == "vmfb":
            raise OptionError("a VMFB has no text; export it in another dialect to read it")
        return self._lowered(as_text=True).decode()

    def bytecode(self) -> bytes:
        """The module as MLIR bytecode; of ``vmfb``, the program.

        Raises:
            CompilationError: an operator has no lowering to the dialect.
        """
        if self._bytecode is None:
            self._bytecode = self._lowered(as_text=False)
        return self._bytecode

    def _lowered(self, *, as_text: bool) -> bytes:
        built = self._program
        module = built.module.bytecode
        return lower_to(module, self.dialect, self._options, built.traits, composites=built.composites, as_text=as_text)

    def save(self, path: str | os.PathLike[str]) -> tuple[Path, ...]:
        """Write the module, and beside it its weights where these are arguments; returns what was written.

        The path's ending says how: ``.mlir`` text, ``.vmfb`` a program, all others bytecode. Weights go to the same
        name with ``.safetensors`` in its place, whose metadata say which function takes which in what order.

        Raises:
            OSError: it cannot be written.
        """
        path = Path(path)
        data = self.mlir_module().encode() if path.suffix == ".mlir" else self.bytecode()
        path.write_bytes(data)
        if not self.weights:
            return (path,)
        from safetensors.torch import save_file

        beside = path.with_suffix(".safetensors")
        order = {name: ",".join(function.weights) for name, function in self.entry_points.items()}
        save_file({name: value.contiguous() for name, value in self.weights.items()}, beside, metadata=order)
        return (path, beside)

    def run(self, *args: Any, entry_point: str | None = None, **kwargs: Any) -> Any:
        """Compile the exported module with IREE, and call it as the program is called.

        (``iree-input``, ``flow`` and ``vmfb`` are on the way there; what is compiled is what they were made from.)

        What the program writes is written: the inputs, and buffers in :attr:`weights`.

        Raises:
            TypeError, ValueError: arguments of another structure, dtype or shape than the examples.
            CompilationError: IREE cannot compile the module.
            ExecutionError: the call failed.
        """
        name = entry_point or self._main
        if name not in self.entry_points:
            raise OptionError(f"unknown entry point {name!r}; known: {', '.join(self.entry_points)}")
        entry, function = self._captured[name], self.entry_points[name]
        program = self._loaded or self._load()
        inputs = entry.flat_inputs(args, kwargs)
        check_sizes([(spec.name, spec.shape, spec.bounds) for spec in entry.inputs], inputs)
        compiled = program.functions[name]
        given = [*(self.weights[weight] for weight in function.weights), *inputs]
        given = [_signless(value, want.dtype) for value, want in zip(given, compiled.inputs, strict=True)]
        results = program(name, check_arguments(compiled, given))
        results = [_signed(result, dtype) for result, dtype in zip(results, entry.result_dtypes(), strict=True)]
        targets = dict(zip((spec.name for spec in entry.inputs), inputs, strict=True)) | self.weights
        for target, value in zip(function.writes, results, strict=False):
            targets[target].copy_(value)
        return entry.unflatten([_as_tensor(result) for result in results[len(function.writes) :]])

    def _load(self) -> LoadedProgram:
        """The module itself; IREE's dialects, which say nothing of types, through what they were made from."""
        is_ours = self.dialect in IREE_DIALECTS
        prepared = prepare_foreign(self._program.module.bytecode if is_ours else self.bytecode(), self._options)
        traits = self._program.traits if is_ours else traits_of_foreign(prepared)
        dialect = "torch" if is_ours else self.dialect
        compiled = compile_foreign(prepared.module or b"", dialect, self._options, traits)
        self._loaded = LoadedProgram(compiled.vmfb, prepared.functions, self._program.driver)
        return self._loaded

    def __repr__(self) -> str:
        return f"ExportedModule({self.dialect}: {', '.join(self.entry_points)})"


def _signless(value: Any, dtype: str) -> Any:
    """The bits of a byte without a sign, where the dialect knows no signs."""
    is_byte = isinstance(value, torch.Tensor) and value.dtype is torch.uint8
    return value.view(torch.int8) if is_byte and dtype == "int8" else value


def _signed(result: Any, dtype: torch.dtype) -> Any:
    return _as_tensor(result).view(torch.uint8) if dtype is torch.uint8 else result


def _as_tensor(result: Any) -> Any:
    return result if isinstance(result, torch.Tensor) else torch.as_tensor(result)
