"""Torch-dialect MLIR -> another dialect by torch-mlir's passes, in the process that calls it: a compiler process.

Nothing in this module may import torch, see ``pipeline.py``.
"""

from __future__ import annotations

import dataclasses
import io
import re
import time
from typing import Any

from turbine_lite.compiler.pipeline import Diagnostic, Response
from turbine_lite.compiler.stablehlo import finish_stablehlo, operations

__all__ = ["PIPELINES", "Composite", "Lowering", "load_stablehlo"]

_TO_BACKEND = "func.func(torch-match-quantized-custom-ops),torchdynamo-export-to-torch-backend-pipeline"
# linalg has lowerings of these, which know which dynamic sizes belong together; those of views guess.
_TO_BACKEND_WITH_FLATTEN = _TO_BACKEND + "{backend-legal-ops=aten.flatten.using_ints,aten.unflatten.int}"
_NO_CONSTRAINTS = "func.func(remove-shape-constraints)"
_CLEAN_FUNCTIONS = "func.func(canonicalize,cse)"
_CLEAN = f"symbol-dce,{_CLEAN_FUNCTIONS}"

# From a dialect to the pipelines of torch-mlir's that lead there, one after the other.
PIPELINES: dict[str, tuple[str, ...]] = {
    "torch": (),
    "torch-backend": (_TO_BACKEND,),
    "linalg-on-tensors": (_TO_BACKEND_WITH_FLATTEN, "torch-backend-to-linalg-on-tensors-backend-pipeline", _CLEAN),
    "tosa": (_TO_BACKEND, "torch-backend-to-tosa-backend-pipeline", _CLEAN),
    "stablehlo": (_TO_BACKEND, "torch-backend-to-stablehlo-backend-pipeline", _NO_CONSTRAINTS, _CLEAN),
}


# torch-mlir's last pass looks whether all is converted, and takes calls for a fault; _torch_operations looks
# in its place.
_NO_CALLS = re.compile(r",torch-verify-(linalg-on-tensors|tosa)-backend-contract")


@dataclasses.dataclass(frozen=True)
class Composite:
    """A private function whose calls become one operation in StableHLO.

    Attributes:
        function: the function's symbol.
        name: of the operation.
        attributes: MLIR text of a dictionary attribute.
    """

    function: str
    name: str
    attributes: str


@dataclasses.dataclass(frozen=True)
class Lowering:
    """A module to lower: bytecode or text in the torch dialect.

    The result, in :attr:`Response.vmfb`, is bytecode, or text with ``as_text``.
    """

    module: bytes
    dialect: str
    composites: tuple[Composite, ...] = ()
    as_text: bool = False

    def run(self) -> Response:
        """Lower it."""
        from torch_mlir import ir
        from torch_mlir.dialects import torch as torch_dialect
        from torch_mlir.passmanager import PassManager

        context = ir.Context()
        torch_dialect.register_dialect(context)
        diagnostics: list[Diagnostic] = []
        context.attach_diagnostic_handler(lambda found: _keep(found, diagnostics))
        seconds: dict[str, float] = {}
        stage = "parse"
        started = time.perf_counter()
        try:
            with context:
                module = ir.Module.parse(self.module)
                stage = "lower"
                hidden = self.composites if self.dialect == "stablehlo" else ()
                for number, pipeline in enumerate(PIPELINES[self.dialect]):
                    if number == 1 and hidden:
                        _hide_calls(ir, PassManager, module, hidden)
                    if number == 1 and self.dialect == "stablehlo":
                        _add_main(ir, module)
                    passes = PassManager.parse(f"builtin.module({pipeline})")
                    if _NO_CALLS.search(str(passes)):
                        passes = PassManager.parse(_NO_CALLS.sub("", str(passes)))
                    passes.run(module.operation)
                left = _torch_operations(ir, module) if PIPELINES[self.dialect][1:] else ()
                if left:
                    diagnostics.append(Diagnostic("error", f"torch-mlir has no lowering for {', '.join(left)}"))
                    return Response(None, stage, tuple(diagnostics), {}, seconds)
                _finish(ir, module, self)
                if self.dialect == "stablehlo":
                    PassManager.parse(f"builtin.module({_CLEAN_FUNCTIONS})").run(module.operation)
                seconds[stage] = time.perf_counter() - started
                result = _written(module, as_text=self.as_text)
        except ir.MLIRError as error:
            diagnostics += [Diagnostic("error", line) for line in _messages(error)]
            return Response(None, stage, tuple(diagnostics), {}, seconds)
        except (RuntimeError, ValueError) as error:  # the passes' own failures carry no diagnostics
            diagnostics.append(Diagnostic("error", str(error)))
            return Response(None, stage, tuple(diagnostics), {}, seconds)
        return Response(result, None, tuple(diagnostics), {}, seconds)


def _written(module: Any, *, as_text: bool) -> bytes:
    if as_text:
        return str(module.operation.get_asm(enable_debug_info=False)).encode()
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    return buffer.getvalue()


def _keep(found: Any, diagnostics: list[Diagnostic]) -> bool:
    """Keep a diagnostic, with where it is in front as IREE has it."""
    severity = str(found.severity).rpartition(".")[2].lower()
    diagnostics.append(Diagnostic(severity, f"{_place(str(found.location))}: {severity}: {found.message}"))
    return True


_FILE = re.compile(r'"([^"]+)":(\d+):(\d+)')


def _place(location: str) -> str:
    found = _FILE.search(location)
    return ":".join(found.groups()) if found else location


def _messages(error: Any) -> list[str]:
    return [f"{_place(str(one.location))}: {one.message}" for one in error.error_diagnostics] or [str(error)]


def _torch_operations(ir: Any, module: Any) -> tuple[str, ...]:
    """Names of the operations that no pass has converted."""
    names: set[str] = set()

    def visit(operation: Any) -> Any:
        name = operation.name
        if name.startswith("torch."):
            given = operation.attributes["name"] if name == "torch.operator" else name
            names.add(str(given).strip('"'))
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return tuple(sorted(names))


def _finish(ir: Any, module: Any, lowering: Lowering) -> None:
    """What no pass of torch-mlir's does."""
    if lowering.dialect == "stablehlo":
        for op in module.body.operations:
            if _OF_MAIN in op.attributes:
                op.erase()
        _make_composites(ir, module, lowering.composites)
        finish_stablehlo(ir, module)
    if lowering.dialect not in ("torch", "torch-backend"):
        for op in module.body.operations:
            for name in _MARKS:
                if name in op.attributes:
                    del op.attributes[name]


# The mark of a function that is there for a pass alone.
_OF_MAIN = "turbine_lite.stands_for_main"


def _add_main(ir: Any, module: Any) -> None:
    """Where no function of several is called main, add one: the pass that refines shapes wants to begin there."""
    names = [ir.StringAttr(op.attributes["sym_name"]).value for op in module.body.operations]
    if len(names) > 1 and "main" not in names:
        module.context.allow_unregistered_dialects = True
        with ir.InsertionPoint(module.body):
            module.body.append(ir.Operation.parse(f"func.func @main() attributes {{{_OF_MAIN}}} {{ return }}"))


# Of functions, for torch-mlir's passes.
_MARKS = ("no_inline", "torch.assume_strict_symbolic_shapes")


# For pipelines whose dialects are wanted.
_ANY_PROGRAM = """
func.func @f(%arg0: !torch.vtensor<[1],f32>) -> !torch.vtensor<[1],f32> { return %arg0 : !torch.vtensor<[1],f32> }
"""


def _hide_calls(ir: Any, pass_manager: Any, module: Any, composites: tuple[Composite, ...]) -> None:
    """Make calls of composites' functions ``stablehlo.custom_call``.

    torch-mlir's pipeline takes calls of functions for a fault at its end, and this one cannot be taken apart: some of
    its passes have no name in Python.
    """
    load_stablehlo(ir, pass_manager)
    for call in operations(ir, module, "func.call"):
        symbol = ir.FlatSymbolRefAttr(call.attributes["callee"]).value
        if symbol not in {composite.function for composite in composites}:
            continue
        with ir.InsertionPoint(call), call.location:
            operands = [_cast(ir, "to", operand) for operand in call.operands]
            made = ir.Operation.create(
                "stablehlo.custom_call",
                results=[_builtin(ir, result.type) for result in call.results],
                operands=operands,
                attributes={"call_target_name": ir.StringAttr.get(symbol)},
            )
            for old, new in zip(call.results, made.results, strict=True):
                old.replace_all_uses_with(_cast(ir, "from", new, old.type))
        call.erase()
    for op in module.body.operations:
        if "sym_visibility" in op.attributes:  # what is private and not called would go
            del op.attributes["sym_visibility"]


def load_stablehlo(ir: Any, pass_manager: Any) -> None:
    """Have the current context of torch-mlir's know StableHLO, for which it has no function.

    A dialect is there once a pipeline that needs it has run.
    """
    pass_manager.parse(f"builtin.module({PIPELINES['stablehlo'][1]})").run(ir.Module.parse(_ANY_PROGRAM).operation)


def _cast(ir: Any, way: str, value: Any, type_: Any = None) -> Any:
    type_ = type_ or _builtin(ir, value.type)
    return ir.Operation.create(f"torch_c.{way}_builtin_tensor", [type_], [value]).results[0]


_VTENSOR = re.compile(r"!torch\.vtensor<\[([\d,?]*)\],[su]?([\w]+)>")


def _builtin(ir: Any, vtensor: Any) -> Any:
    found = _VTENSOR.fullmatch(str(vtensor))
    if found is None:
        raise ValueError(f"a composite takes or returns {vtensor}, which is no tensor")
    sizes = "".join(f"{size}x" for size in found.group(1).split(",") if size)
    return ir.Type.parse(f"tensor<{sizes}{found.group(2)}>")


def _make_composites(ir: Any, module: Any, composites: tuple[Composite, ...]) -> None:
    """Turn what :func:`_hide_calls` has left into ``stablehlo.composite``."""
    known = {composite.function: composite for composite in composites}
    for call in operations(ir, module, "stablehlo.custom_call"):
        composite = known.get(ir.StringAttr(call.attributes["call_target_name"]).value)
        if composite is None:
            continue
        with ir.InsertionPoint(call), call.location:
            made = ir.Operation.create(
                "stablehlo.composite",
                results=[result.type for result in call.results],
                operands=list(call.operands),
                attributes={
                    "name": ir.StringAttr.get(composite.name),
                    "composite_attributes": ir.Attribute.parse(composite.attributes),
                    "decomposition": ir.FlatSymbolRefAttr.get(composite.function),
                },
            )
        for old, new in zip(call.results, made.results, strict=True):
            old.replace_all_uses_with(new)
        call.erase()
    for op in module.body.operations:
        if ir.StringAttr(op.attributes["sym_name"]).value in known:
            op.attributes["sym_visibility"] = ir.StringAttr.get("private")
