"""Which nodes IREE may take. Every "no" is a :class:`Reason`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, TypeGuard

import torch
from torch._ops import OpOverload
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils._pytree import tree_leaves

from turbine_lite.graph.decompositions import draws_random_numbers
from turbine_lite.graph.expand import is_expanded
from turbine_lite.graph.known_wrong import why_known_wrong
from turbine_lite.graph.source import source_line

__all__ = [
    "EXPECTED_KINDS",
    "Check",
    "Reason",
    "is_own_operator",
    "is_symbolic_scalar",
    "op_name",
    "reason_for",
    "tensors_of",
    "why_not",
]

# Decides about one node: None means "IREE may take it".
Check = Callable[[Node], "Reason | None"]

# The others are either unknown to torch-mlir's importer or were seen to crash the compiler or to give wrong values:
# unsigned numbers are treated as signed, complex programs mostly do not lower.
_DTYPES = frozenset(
    {
        torch.bool,
        torch.int8,
        torch.uint8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
    }
)


# What runs in eager by nature, or because the user asked for it: no news, and no error under fallback="error".
EXPECTED_KINDS = frozenset({"random", "slower", "disabled", "data-dependent", "small", "once", "in-place"})


@dataclasses.dataclass(frozen=True)
class Reason:
    """Why a node does not run in IREE.

    Attributes:
        kind: "disabled", "random", "effect", "dtype", "layout", "device", "data-dependent", "custom-op",
            "known-wrong", "not-importable", "not-lowered", "index", "divisor", "slower", "small", "once", "in-place",
            "crash", "timeout", "runtime" or "internal".
        text: one sentence for a person.
        node: name of the FX node, or "" for a whole graph.
        op: name of the operator, such as ``aten.sort.default``.
        source: the user's source line, or "".
    """

    kind: str
    text: str
    node: str = ""
    op: str = ""
    source: str = ""

    def __str__(self) -> str:
        at = f" at {self.source}" if self.source else ""
        return f"{self.op or self.node or 'graph'}: {self.text}{at}"


def reason_for(node: Node, kind: str, text: str) -> Reason:
    """A reason that names ``node``, its operator and its source line."""
    return Reason(kind, text, node.name, op_name(node), source_line(node))


def op_name(node: Node) -> str:
    """``aten.add.Tensor`` for an ATen call, the function's name for other calls."""
    if isinstance(node.target, OpOverload):
        return str(node.target)
    return getattr(node.target, "__name__", None) or str(node.target)


def is_symbolic_scalar(value: Any) -> bool:
    """Whether a node's value is a symbolic integer, float or bool."""
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


def tensors_of(node: Node) -> Iterator[torch.Tensor]:
    """The fake tensors that a node reads and produces."""
    for argument in (*node.all_input_nodes, node):
        for leaf in tree_leaves(argument.meta.get("val")):
            if isinstance(leaf, torch.Tensor):
                yield leaf


def is_own_operator(target: object) -> TypeGuard[OpOverload]:
    """Whether a call's target is an operator of PyTorch's own, not a function, a custom or a higher-order operator."""
    return isinstance(target, OpOverload) and target.namespace in ("aten", "prims")


def why_not(node: Node, disabled_ops: tuple[str, ...] = ()) -> Reason | None:
    """The reason why a call must run in eager, or None."""
    target = node.target
    if not isinstance(target, OpOverload):
        return reason_for(node, "effect", "this higher-order operator has no lowering to IREE")
    if _is_disabled(target, disabled_ops):
        return reason_for(node, "disabled", "disabled by the option disabled_ops")
    expanded = is_expanded(node)
    if not is_own_operator(target) and not expanded:
        return reason_for(node, "custom-op", "a custom operator has no lowering to IREE")
    if draws_random_numbers(target):
        return reason_for(node, "random", "random numbers must be those that eager draws")
    if target._schema.is_mutable:
        return reason_for(node, "effect", "the operator writes to its argument")
    if not expanded and _writes_through_mask(node):
        return reason_for(node, "data-dependent", "a mask says at run time how many elements are written")
    return _why_not_these_tensors(node) or (None if expanded else _why_known_wrong(node))


def _writes_through_mask(node: Node) -> bool:
    # It lowers, to a program that writes outside of its memory.
    if node.target not in (torch.ops.aten.index_put.default, torch.ops.aten._unsafe_index_put.default):
        return False
    arguments: Any = node.args
    indices = [index for index in arguments[1] if isinstance(index, Node)]
    return any(index.meta["val"].dtype in (torch.bool, torch.uint8) for index in indices)


def _is_disabled(target: OpOverload, disabled_ops: tuple[str, ...]) -> bool:
    name = str(target)
    return name in disabled_ops or name.rpartition(".")[0] in disabled_ops


def _why_not_these_tensors(node: Node) -> Reason | None:
    for tensor in tensors_of(node):
        if tensor.layout is not torch.strided:
            return reason_for(node, "layout", f"a tensor has layout {tensor.layout}, IREE takes strided ones")
        if tensor.device.type != "cpu":
            return reason_for(node, "device", f"a tensor is on device {tensor.device}, this backend is for CPUs")
        if tensor.dtype not in _DTYPES:
            return reason_for(node, "dtype", f"dtype {tensor.dtype} does not run correctly in IREE")
        if free_unbacked_symbols(tensor):
            return reason_for(node, "data-dependent", "a shape depends on data")
    return None


def _why_known_wrong(node: Node) -> Reason | None:
    symptom = why_known_wrong(node)
    return None if symptom is None else reason_for(node, "known-wrong", symptom)
