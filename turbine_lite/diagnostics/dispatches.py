"""How long each dispatch of a program takes, by IREE's own profiler, and which lines of the user's it comes from.

The profiler is a part of ``iree-benchmark-module``, which runs the program in a process of its own, with the arguments
of a call and with parameters that are all zero.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import subprocess
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from iree import runtime

from turbine_lite.compiler.flags import STACK_BYTES
from turbine_lite.errors import ExecutionError
from turbine_lite.graph.signature import ScalarInput, Signature, TensorInput
from turbine_lite.mlir.entry_point import ENTRY_POINT, PARAMETER_SCOPE, parameter_name
from turbine_lite.mlir.locations import lines_in, nodes_in

__all__ = ["Dispatch", "Origin", "bytes_of_dispatches", "origins_of_dispatches", "time_dispatches"]

_SECONDS = 0.5
_TIMEOUT = 120

_ELEMENT_TYPES = {
    torch.bool: "i8",
    torch.int8: "i8",
    torch.uint8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.float64: "f64",
}


@dataclasses.dataclass(frozen=True)
class Origin:
    """Where a dispatch comes from: names of FX nodes, and the user's lines as (file, number)."""

    nodes: tuple[str, ...]
    lines: tuple[tuple[str, int], ...]


@dataclasses.dataclass(frozen=True)
class Dispatch:
    """One of IREE's kernels in a program.

    Attributes:
        name: as in ``executable-sources.mlir``.
        seconds: of all its runs in one call of the program, on average; ``calls`` is how many these are.
    """

    name: str
    seconds: float
    calls: float


def time_dispatches(
    vmfb: bytes, signature: Signature, driver: str, args: Sequence[Any], results: Sequence[torch.Tensor], folder: Path
) -> list[Dispatch]:
    """Run a program for half a second.

    Args:
        vmfb, signature, driver: the program.
        args: the arguments of one call, as the signature lists them.
        results: what the call returned.
        folder: an empty directory for the program's arguments.

    Raises:
        ExecutionError: the program cannot be run there.
    """
    (folder / "module.vmfb").write_bytes(vmfb)
    command = [
        str(Path(sysconfig.get_path("scripts"), "iree-benchmark-module")),
        f"--module={folder / 'module.vmfb'}",
        f"--function={ENTRY_POINT}",
        f"--device={driver}",
        f"--task_topology_group_count={torch.get_num_threads()}",
        f"--task_worker_stack_size={4 * STACK_BYTES}",
        "--dispatch_statistics",
        "--benchmark_format=json",
        f"--benchmark_min_time={_SECONDS}s",
        *_inputs(signature, args, results, folder),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
        rows = json.loads(done.stdout[done.stdout.index("{") :])["benchmarks"] if done.returncode == 0 else None
    except (OSError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
        raise ExecutionError(f"IREE's profiler does not run: {error}") from error
    if rows is None:
        raise ExecutionError(f"IREE's profiler failed: {done.stderr.strip()[-2000:]}")
    return [
        Dispatch(row["name"].removeprefix(f"BM_{ENTRY_POINT}/"), _in_seconds(row), row["calls"])
        for row in rows
        if "calls" in row
    ]


def _in_seconds(row: Mapping[str, Any]) -> float:
    return float(row["real_time"]) * {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}[row["time_unit"]]


def _inputs(signature: Signature, args: Sequence[Any], results: Sequence[torch.Tensor], folder: Path) -> Iterator[str]:
    parameters = runtime.ParameterIndex()
    for position, (spec, value) in enumerate(zip(signature.inputs, args, strict=True)):
        if isinstance(spec, ScalarInput):
            yield f"--input={float(value)!r}" if spec.type is float else f"--input={int(value)}"
        elif isinstance(spec, TensorInput) and spec.parameter:
            parameters.add_splat(parameter_name(position), b"\0", value.numel() * value.itemsize)
        else:
            tensor = value.resolve_neg() if spec.negated else value
            tensor = (tensor if spec.order is None else tensor.permute(spec.order)).contiguous()
            path = folder / f"input_{position}.bin"
            path.write_bytes(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
            yield f"--input={_type(tensor.shape, tensor.dtype)}=@{path}"
    for output, result in zip(signature.outputs, results, strict=False):
        shape = result.shape if output.order is None else result.permute(output.order).shape
        yield f"--input={_type(shape, output.dtype)}=0"
    if signature.counts_errors:
        yield "--input=i64=0"
    if len(parameters):
        path = folder / "parameters.irpa"
        parameters.create_archive_file(str(path))
        yield f"--parameters={PARAMETER_SCOPE}={path}"


def _type(shape: Sequence[int], dtype: torch.dtype) -> str:
    return "x".join([*map(str, shape), _ELEMENT_TYPES[dtype]])


_EXPORT = re.compile(r"hal\.executable\.export public @([\w$.\"]+)")
_EXECUTABLE = re.compile(r"^  hal\.executable private @", re.MULTILINE)


def origins_of_dispatches(executable_sources: str) -> dict[str, Origin]:
    """From the name of each dispatch to where it comes from, by the locations in the IR of ``executable-sources``."""
    origins = {}
    for text in _EXECUTABLE.split(executable_sources)[1:]:
        body = text[: text.find("\n  }")]
        export = _EXPORT.search(body)
        if export is not None:
            origins[export.group(1).strip('"')] = Origin(nodes_in(body), lines_in(body))
    return origins


_DISPATCH = re.compile(
    r"flow\.dispatch @[\w$.]+::@([\w$.]+)\b.*? : \((?P<operands>.*?)\) -> (?P<results>.*?)(?: loc\(|$)"
)
_TENSOR = re.compile(r"tensor<((?:\d+x)*)([a-z]+)(\d+)")


def bytes_of_dispatches(flow: str) -> dict[str, int]:
    """From the name of each dispatch to the bytes that one run reads and writes, by the types in the IR of ``flow``.

    Dispatches over dynamic sizes are left out.
    """
    sizes = {}
    for line in flow.splitlines():
        match = _DISPATCH.search(line)
        if match is not None and "?" not in match["operands"] + match["results"]:
            sizes[match.group(1)] = _bytes(match["operands"]) + _bytes(match["results"])
    return sizes


def _bytes(types: str) -> int:
    return sum(
        math.prod(int(size) for size in shape.split("x") if size) * max(1, int(bits) // 8)
        for shape, _, bits in _TENSOR.findall(types)
    )
