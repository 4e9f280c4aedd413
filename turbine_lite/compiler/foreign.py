"""MLIR that somebody else wrote, made ready for IREE's compiler: what can be called, and with what.

Runs in a compiler process. Nothing in this module may import torch, see ``pipeline.py``.
"""

from __future__ import annotations

import dataclasses
import io
import re
from typing import Any

from turbine_lite.compiler.foreign_stablehlo import help_with_dynamic_sizes
from turbine_lite.compiler.pipeline import Diagnostic

__all__ = ["Function", "Preparation", "Prepared", "Value"]


@dataclasses.dataclass(frozen=True)
class Value:
    """An argument or result: its name, if it has one, its dtype as torch and numpy call it, and its sizes.

    ``sizes`` has None for what is not known before a call, and is None for a number (which is no tensor). An argument
    that is ``consumed`` has to be a copy: the program may write it.
    """

    name: str | None
    dtype: str
    sizes: tuple[int | None, ...] | None
    consumed: bool = False


@dataclasses.dataclass(frozen=True)
class Function:
    """A function that can be called."""

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A module as bytecode for IREE, and its public functions; or, without a module, what is wrong with it.

    ``keep_f64``: it computes with float64 tensors. ``dynamic``: with tensors of sizes that are not known before a call.
    """

    module: bytes | None
    functions: tuple[Function, ...]
    diagnostics: tuple[Diagnostic, ...] = ()
    keep_f64: bool = False
    dynamic: bool = False


class _UnknownTypeError(Exception):
    pass


@dataclasses.dataclass(frozen=True)
class Preparation:
    """A module to make ready: text or bytecode.

    Public functions also return their tensor arguments afterwards, which nobody reads; that is what keeps IREE from
    writing into an argument's memory where that saves a copy.
    """

    module: bytes

    def run(self) -> Prepared:
        """Make it ready."""
        from iree.compiler import ir

        try:
            with ir.Context() as context, ir.Location.unknown():
                diagnostics: list[Diagnostic] = []
                context.attach_diagnostic_handler(lambda found: _keep(found, diagnostics))
                module = ir.Module.parse(self.module)
                described = tuple(_describe(op) for op in module.body.operations if _is_public(op))
                if not described:
                    return Prepared(None, (), (Diagnostic("error", "the module has no public function with a body"),))
                if any(op.operation.name.startswith("vhlo.") for op in module.body.operations):
                    module = ir.Module.parse(_from_portable_artifact(self.module))
                help_with_dynamic_sizes(ir, module)
                functions = [op for op in module.body.operations if _is_public(op)]
                text = module.operation.get_asm(large_elements_limit=16, large_resource_limit=16)
                for op in functions:
                    _return_arguments(ir, op)
                for op in module.body.operations:
                    if "no_inline" in op.operation.attributes:  # torch-to-iree has no calls
                        del op.operation.attributes["no_inline"]
                buffer = io.BytesIO()
                module.operation.write_bytecode(buffer)
                is_f64, is_dynamic = bool(_F64_TENSOR.search(text)), bool(_DYNAMIC_TENSOR.search(text))
                return Prepared(buffer.getvalue(), described, (), is_f64, is_dynamic)
        except ir.MLIRError as error:
            found = [Diagnostic("error", f"{one.location}: {one.message}") for one in error.error_diagnostics]
            return Prepared(None, (), tuple(found) or (Diagnostic("error", str(error)),))
        except (_UnknownTypeError, ValueError) as error:
            return Prepared(None, (), (*diagnostics, Diagnostic("error", str(error))))


def _keep(found: Any, diagnostics: list[Diagnostic]) -> bool:
    severity = str(found.severity).rpartition(".")[2].lower()
    diagnostics.append(Diagnostic(severity, f"{found.location}: {found.message}"))
    return True


def _is_public(op: Any) -> bool:
    if op.operation.name not in ("func.func", "vhlo.func_v1") or not len(op.operation.regions[0].blocks):
        return False
    attributes = op.operation.attributes
    visibility = _string(attributes["sym_visibility"]) if "sym_visibility" in attributes else ""
    return visibility in ("", "public")


_STRING = re.compile(r'"(.*)"')


def _string(attribute: Any) -> str:
    found = _STRING.search(str(attribute))
    return found.group(1) if found else ""


def _from_portable_artifact(module: bytes) -> bytes:
    """VHLO, the versioned form of StableHLO, -> linalg, by the compiler's C API: Python's has no such pass."""
    from iree.compiler.api import ctypes_dl

    with ctypes_dl.Session() as session:
        session.set_flags("--iree-input-type=stablehlo")
        with session.invocation() as invocation:
            source = ctypes_dl.Source.wrap_buffer(session, module)
            if not invocation.parse_source(source) or not invocation.execute_text_pass_pipeline(
                "iree-stablehlo-input-transformation-pipeline"
            ):
                raise ValueError(
                    "the portable StableHLO artifact cannot be converted; where sizes are dynamic, load its text "
                    "(in JAX, Exported.mlir_module())"
                )
            output = ctypes_dl.Output.open_membuffer()
            invocation.output_ir_bytecode(output)
            return bytes(output.map_memory())


def _describe(op: Any) -> Function:
    operation = op.operation
    arguments = list(operation.regions[0].blocks[0].arguments)
    inputs = [
        dataclasses.replace(
            _value(arg.type, _name_of(operation, "arg_attrs", i, arg)), consumed=not _can_be_kept(arg.type)
        )
        for i, arg in enumerate(arguments)
    ]
    returned = list(_terminator(op).operands)
    outputs = [_value(value.type, _name_of(operation, "res_attrs", i, None)) for i, value in enumerate(returned)]
    return Function(_string(operation.attributes["sym_name"]), tuple(inputs), tuple(outputs))


_F64_TENSOR = re.compile(r"tensor<(?:[\d?]+x)*f64|vtensor<\[[\d,?]*\],f64")
_DYNAMIC_TENSOR = re.compile(r"tensor<(?:\d+x)*\?|vtensor<\[[\d,]*\?")

_NAMES = ("iree.abi.name", "ml_program.identifier", "tf_saved_model.index_path", "jax.arg_info", "jax.result_info")
_LOCATION_NAME = re.compile(r'^loc\("([^"]+)"(?:\(.*\))?\)$')


def _name_of(operation: Any, which: str, index: int, argument: Any) -> str | None:
    attributes = operation.attributes
    if which in attributes and operation.name == "func.func":
        given = attributes[which][index]
        for name in _NAMES:
            if name in given:
                return _string(given[name])
    if argument is not None:
        # JAX, torch-mlir and others put the name of an argument into its location; that is no file, so has no line.
        found = _LOCATION_NAME.match(str(argument.location))
        return found.group(1) if found else None
    return None


_TENSOR = re.compile(r"^tensor<((?:[\d?]+x)*)(\w+)(?:, .*)?>$")
_TORCH = re.compile(r"^!torch\.vtensor<\[([\d,?]*)\],(\w+)>$")
_DTYPES = {
    **{"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "i1": "bool"},
    **{f"{sign}{bits}": f"int{bits}" for sign in ("i", "si") for bits in (8, 16, 32, 64)},
    "ui8": "uint8",
}


_VERSIONED = re.compile(r"!vhlo\.(\w+?)_v\d+")


def _value(type_: Any, name: str | None) -> Value:
    text = _VERSIONED.sub(r"\1", str(type_)).replace("xbool>", "xi1>").replace("<bool>", "<i1>")
    tensor, torch_tensor = _TENSOR.match(text), _TORCH.match(text)
    if tensor is not None:
        sizes, element = tensor.group(1).split("x")[:-1], tensor.group(2)
    elif torch_tensor is not None:
        sizes, element = [size for size in torch_tensor.group(1).split(",") if size], torch_tensor.group(2)
    else:
        numbers = {"!torch.int": "int64", "!torch.float": "float64", "index": "int64", **_DTYPES}
        if text in numbers and text != "i1":
            return Value(name, numbers[text], None)
        raise _UnknownTypeError(f"a function has an argument or result of type {text}, which is no tensor or number")
    if element not in _DTYPES:
        raise _UnknownTypeError(f"tensors of {element} cannot be passed; known are {', '.join(_DTYPES)}")
    return Value(name, _DTYPES[element], tuple(None if size == "?" else int(size) for size in sizes))


def _terminator(op: Any) -> Any:
    *_, block = op.operation.regions[0].blocks
    return block.operations[len(block.operations) - 1].operation


def _can_be_kept(type_: Any) -> bool:
    """Whether IREE takes the barrier; torch's tensors go through one of their own."""
    text = str(type_)
    return "torch" in text or not ("?" in text or "xui" in text or "<ui" in text or "vhlo" in text)


def _kept(ir: Any, argument: Any) -> Any:
    """The argument in a way that IREE does not see through: of one that is returned as it came, it keeps nothing."""
    if "torch" in str(argument.type) or not _can_be_kept(argument.type):
        return argument
    return ir.Operation.create("util.optimization_barrier", [argument.type], [argument]).results[0]


def _return_arguments(ir: Any, op: Any) -> None:
    operation = op.operation
    blocks = list(operation.regions[0].blocks)
    arguments = [arg for arg in blocks[0].arguments if "tensor<" in str(arg.type)]
    results: list[Any] = []
    for block in blocks:
        last = block.operations[len(block.operations) - 1]
        if last.operation.name != "func.return":
            continue
        with ir.InsertionPoint(last), last.operation.location:
            operands = [*last.operation.operands, *(_kept(ir, argument) for argument in arguments)]
            results = [operand.type for operand in operands]
            ir.Operation.create("func.return", operands=operands)
        last.operation.erase()
    inputs = [arg.type for arg in blocks[0].arguments]
    operation.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, results))
    if "res_attrs" in operation.attributes:
        given = list(operation.attributes["res_attrs"])
        more = [ir.DictAttr.get({})] * (len(results) - len(given))
        operation.attributes["res_attrs"] = ir.ArrayAttr.get([*given, *more])
