"""Operators that lower and compile, and then give a wrong answer or bring the compiler down.

Every row was seen with the versions that it names and is proved by ``tests/conformance/test_known_wrong.py``: when
IREE gets one right, that test fails and the row can go.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch.fx import Node

from turbine_lite.graph.expansions.expansion import tensor_argument
from turbine_lite.graph.sizes import is_static

__all__ = ["KNOWN_WRONG", "KnownWrong", "why_known_wrong"]


@dataclasses.dataclass(frozen=True)
class KnownWrong:
    """One row: ``op`` is an overload's name; ``when`` narrows it down to some arguments."""

    op: str
    symptom: str
    when: Callable[[Node], bool] = lambda node: True
    versions: str = "IREE 3.13.0, torch-mlir 20261001"


def _reads_bool(node: Node) -> bool:
    return tensor_argument(node).dtype is torch.bool


def _is_unsafe(node: Node) -> bool:
    # With a source that is a slice, beside other readers of it: seen in the forward graph of a training step.
    return _reads_bool(node) or not all(is_static(source.meta["val"].shape) for source in node.all_input_nodes)


def _has_sample_weights(node: Node) -> bool:
    return len(node.all_input_nodes) > 3


_SORT = "does not sort NaN last, nor True after False, orders equal values otherwise and takes n * n steps, in IREE"

# IREE's booleans are one-bit integers: True is -1 where they are ordered, and 1 + 1 is 0 where they are added.
_BOOL = "takes True for -1, and True + True for False, in IREE"
_BOOL_OPS = (
    "clamp.Tensor",
    "clamp_min.Tensor",
    "clamp_max.Tensor",
    "index_put.default",
    "_unsafe_index_put.default",
    "index_add.default",
    "scatter_add.default",
    "cummax.default",
    "cummin.default",
)

KNOWN_WRONG: tuple[KnownWrong, ...] = (
    KnownWrong("aten.logcumsumexp.default", "overflows in IREE"),
    KnownWrong("aten.sort.default", _SORT),
    KnownWrong("aten.sort.stable", _SORT),
    KnownWrong("aten.topk.default", "takes NaN for no number, and orders equal values otherwise, in IREE"),
    KnownWrong("aten._embedding_bag_forward_only.default", "ignores per_sample_weights in IREE", _has_sample_weights),
    KnownWrong("aten._embedding_bag.default", "ignores per_sample_weights in IREE", _has_sample_weights),
    KnownWrong("aten.scatter_reduce.two", "adds booleans modulo 2, and dynamic sizes wrongly, in IREE", _is_unsafe),
    *(KnownWrong(f"aten.{op}", _BOOL, _reads_bool) for op in _BOOL_OPS),
)

_BY_OP = {row.op: row for row in KNOWN_WRONG}


def why_known_wrong(node: Node) -> str | None:
    """The symptom, if the table has a row for this call."""
    row = _BY_OP.get(str(node.target))
    return row.symptom if row is not None and row.when(node) else None
