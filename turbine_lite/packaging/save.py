"""``save``: compile a program for one or several kinds of CPUs into one file."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from turbine_lite.compiler.dialects import compile_foreign, prepare_foreign
from turbine_lite.compiler.foreign import Function
from turbine_lite.environment import installed_versions
from turbine_lite.errors import OptionError, UnsupportedError
from turbine_lite.exporting.capture import Captured, EntryPoint, InputSpec, capture
from turbine_lite.exporting.program import Program, build_program
from turbine_lite.options import Options
from turbine_lite.packaging.archive import write_archive
from turbine_lite.packaging.structure import structure_of
from turbine_lite.packaging.targets import target_of
from turbine_lite.runtime.views import ITEM_BYTES

__all__ = ["save"]


def save(
    program: Any,
    path: str | os.PathLike[str],
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    targets: Sequence[str] = ("host",),
    entry_points: Mapping[str, EntryPoint] | None = None,
    options: dict[str, Any] | None = None,
) -> Path:
    """Compile a program for inference and write it to one file, which :func:`turbine_lite.load` runs.

    The file holds the weights once, and a program for each target. What the program writes (buffers such as caches)
    starts from its values now, each time the file is loaded.

    Args:
        program: a module, a function, a TorchScript module, or a ``torch.export.ExportedProgram``.
        path: the file; it is replaced if it exists.
        args: example arguments.
        kwargs: example arguments by name.
        dynamic_shapes: as for ``torch.export.export``.
        targets: ``"host"`` (this machine), ``"x86-64-v4"`` (AVX-512), ``"x86-64-v3"`` (AVX2) or ``"aarch64"``; where
            it is loaded, the first that the CPU can run is taken.
        entry_points: functions of the program by the names they get, in place of ``args``.
        options: fields of :class:`turbine_lite.Options`, without ``target_cpu``.

    Raises:
        OptionError: an unknown target or option.
        UnsupportedError: a tensor has a dtype that IREE does not have.
        CompilationError: a part of the program cannot be compiled; nothing is written then.
        OSError: the file cannot be written.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: there is no directory {path.parent}")
    if not targets:
        raise OptionError("a package needs at least one target, such as 'host'")
    chosen = Options.resolve(options, None)
    wanted = [target_of(name) for name in dict.fromkeys(targets)]
    entries = entry_points or {"main": EntryPoint("forward", args, kwargs or {}, dynamic_shapes)}
    captured = {name: capture(program, entry) for name, entry in entries.items()}
    weights = {name: value for entry in captured.values() for name, value in entry.weights.items()}
    state = {weight for entry in captured.values() for weight in entry.state}
    names = {name: f"weight_{index}" for index, name in enumerate(weights) if name not in state}
    _check_dtypes(captured, weights)
    built = build_program(captured, for_iree=True, check=True, parameters=names)
    prepared = prepare_foreign(built.module.bytecode, chosen)
    pieces: dict[str, Any] = {}
    for target in wanted:
        flags = (*chosen.compile_flags, *target.flags())
        for_target = dataclasses.replace(chosen, target_cpu=target.cpu, compile_flags=flags)
        compiled = compile_foreign(prepared.module or b"", "torch", for_target, built.traits)
        pieces[f"program {target.name}"] = compiled.vmfb
    pieces |= {f"weight {name}": _bytes_of(value) for name, value in weights.items()}
    functions = {function.name: function for function in prepared.functions}
    description = {
        "versions": installed_versions(),
        "targets": [target._asdict() for target in wanted],
        "driver": built.driver,
        "weights": {
            name: {"dtype": _dtype(value.dtype), "shape": list(value.shape), "parameter": names.get(name)}
            for name, value in weights.items()
        },
        "entry_points": {name: _described(functions[name], entry, built) for name, entry in captured.items()},
    }
    write_archive(path, description, pieces)
    return path


def _described(function: Function, entry: Captured, built: Program) -> dict[str, Any]:
    return {
        "function": dataclasses.asdict(function),
        "state": built.arguments[function.name],
        "writes": entry.write_names,
        "inputs": [_input(spec) for spec in entry.inputs],
        "arguments": structure_of(entry.in_spec, entry.constants),
        "results": structure_of(entry.out_spec, entry.fixed_results),
        "counts_errors": function.name in built.counting,
    }


def _input(spec: InputSpec) -> dict[str, Any]:
    shape = None if spec.shape is None else list(spec.shape)
    return {"name": spec.name, "dtype": _dtype(spec.dtype), "shape": shape, "bounds": dict(spec.bounds)}


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _check_dtypes(captured: Mapping[str, Captured], weights: Mapping[str, torch.Tensor]) -> None:
    inputs = {spec.name: spec.dtype for entry in captured.values() for spec in entry.inputs}
    for name, dtype in {**inputs, **{name: value.dtype for name, value in weights.items()}}.items():
        if _dtype(dtype) not in ITEM_BYTES:
            raise UnsupportedError(f"{name} is of {dtype}; a package can have {', '.join(ITEM_BYTES)}")


def _bytes_of(tensor: torch.Tensor) -> Any:
    dense = tensor.detach().contiguous().reshape(-1)
    return dense.view(torch.uint8).numpy() if dense.numel() else b""
