"""A wrong result as a directory that shows it without turbine_lite: a script, its inputs and the MLIR."""

from __future__ import annotations

import dataclasses
import logging
import pprint
from pathlib import Path

import torch

from turbine_lite.compile_region import RegionBuild
from turbine_lite.diagnostics.bisect import Culprit
from turbine_lite.diagnostics.dump import Dump
from turbine_lite.diagnostics.snapshot import copy_arguments
from turbine_lite.graph.signature import TensorInput
from turbine_lite.mlir.entry_point import ENTRY_POINT, PARAMETER_SCOPE, parameter_name
from turbine_lite.options import Options

__all__ = ["write_reproducer"]

log = logging.getLogger(__name__)


def write_reproducer(culprit: Culprit, options: Options, dump: Dump, headline: str) -> Path | None:
    """Write ``reproduce.py`` and what it needs; returns the script's path, or None if nothing could be written.

    The directory gets all that a dump of a region has, and ``tensors.pt``: arguments and eager's results.
    """
    if dump.path is None:
        return None
    executable = RegionBuild(culprit.part.gm, dataclasses.replace(options, dump_dir=str(dump.path)), dump).finish()
    path = dump.path / "reproduce.py"
    try:
        tensors = copy_arguments(culprit.inputs), copy_arguments(culprit.expected)
        if executable.signature.counts_errors:
            tensors[1].append(torch.tensor(0))
        torch.save(tensors, dump.path / "tensors.pt")
    except (OSError, RuntimeError) as error:  # torch.save reports a full disk as a RuntimeError
        log.warning("cannot write %s: %s", dump.path / "tensors.pt", error)
        return None
    arguments = [
        (str(spec.dtype), spec.order, spec.parameter) if isinstance(spec, TensorInput) else spec.type.__name__
        for spec in executable.signature.inputs
    ]
    results = [(str(spec.dtype), spec.order) for spec in executable.signature.outputs]
    text = _SCRIPT.format(
        headline=headline.replace("\\", "/").replace('"""', "'''"),
        graph="\n".join("    " + line for line in culprit.part.gm.code.strip().splitlines()),
        flags=pprint.pformat(list(dump.recorded["flags"]), width=116),
        arguments=arguments,
        results=results,
        entry_point=ENTRY_POINT,
        parameter_scope=PARAMETER_SCOPE,
        parameter_prefix=parameter_name(""),
    )
    dump.write("reproduce.py", text)
    return path if path.exists() else None


_SCRIPT = '''"""{headline}

Needs torch, iree-base-compiler and iree-base-runtime. Compiles torch.mlirbc, runs it on the arguments in tensors.pt
and prints how far each result is from what eager PyTorch gave. The graph in question:

{graph}
"""

import subprocess
from pathlib import Path

import torch
from iree import runtime
from iree.compiler.tools.binaries import find_tool

HERE = Path(__file__).resolve().parent
FLAGS = {flags}
# dtype and order of dimensions in memory of each tensor, and whether the program is loaded with it; the type of each
# number
ARGUMENTS = {arguments}
RESULTS = {results}

ELEMENTS = {{
    torch.bool: runtime.HalElementType.BOOL_8,
    torch.int8: runtime.HalElementType.SINT_8,
    torch.uint8: runtime.HalElementType.UINT_8,
    torch.int16: runtime.HalElementType.SINT_16,
    torch.int32: runtime.HalElementType.SINT_32,
    torch.int64: runtime.HalElementType.SINT_64,
    torch.float16: runtime.HalElementType.FLOAT_16,
    torch.bfloat16: runtime.HalElementType.BFLOAT_16,
    torch.float32: runtime.HalElementType.FLOAT_32,
    torch.float64: runtime.HalElementType.FLOAT_64,
}}
BYTES = {{1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}}


def in_memory(tensor, order):
    tensor = tensor if order is None else tensor.permute(order)
    return tensor.resolve_neg().contiguous()


def compile_program():
    command = [find_tool("iree-compile"), str(HERE / "torch.mlirbc"), *FLAGS]
    subprocess.run([*command, "-o", str(HERE / "reproduced.vmfb")], check=True)
    return (HERE / "reproduced.vmfb").read_bytes()


def run(vmfb, arguments, expected):
    instance = runtime.VmInstance()
    device = runtime.get_driver("local-sync").create_default_device()
    parameters = runtime.ParameterIndex()

    def view(tensor):
        memory = int(runtime.MemoryType.DEVICE_LOCAL) | int(runtime.MemoryType.HOST_VISIBLE)
        usage = int(runtime.BufferUsage.DEFAULT) | int(runtime.BufferUsage.MAPPING)
        data = tensor.view(BYTES[tensor.itemsize]).numpy()
        return device.allocator.allocate_buffer_copy(memory, usage, device, data, ELEMENTS[tensor.dtype])

    inputs = runtime.VmVariantList(len(arguments) + len(expected))
    returned = 0
    for position, (argument, kind) in enumerate(zip(arguments, ARGUMENTS)):
        if kind == "int":
            inputs.push_int(int(argument))
        elif kind == "float":
            inputs.push_float(float(argument))
        elif kind[2]:
            data = in_memory(argument, kind[1]).view(BYTES[argument.itemsize]).numpy()
            parameters.add_buffer("{parameter_prefix}" + str(position), data)
        else:
            inputs.push_ref(view(in_memory(argument, kind[1])))
            returned += 1
    provider = parameters.create_provider(scope="{parameter_scope}")
    hal, given = runtime.create_hal_module(instance, device), runtime.create_io_parameters_module(instance, provider)
    module = runtime.VmModule.copy_buffer(instance, vmfb)
    context = runtime.VmContext(instance, [hal, given, module])
    # The program writes its results into tensors that it is given.
    results = [in_memory(torch.zeros_like(e), order) for e, (_, order) in zip(expected, RESULTS)]
    views = [view(result) for result in results]
    for result in views:
        inputs.push_ref(result)
    context.invoke(module.lookup_function("{entry_point}"), inputs, runtime.VmVariantList(returned))
    for result, written, (_, order) in zip(results, views, RESULTS):
        data = written.map().asarray(result.shape, result.view(BYTES[result.itemsize]).numpy().dtype)
        tensor = torch.from_numpy(data.copy()).view(result.dtype)
        inverse = None if order is None else sorted(range(len(order)), key=order.__getitem__)
        yield tensor if inverse is None else tensor.permute(inverse)


def main():
    arguments, expected = torch.load(HERE / "tensors.pt")
    for index, (got, want) in enumerate(zip(run(compile_program(), arguments, expected), expected)):
        error = (got.double() - want.double()).abs().max().item() if want.numel() else 0.0
        print(f"result {{index}}: largest difference from eager {{error:g}}; equal: {{torch.equal(got, want)}}")


if __name__ == "__main__":
    main()
'''
