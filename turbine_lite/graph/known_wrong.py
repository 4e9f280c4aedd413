"""Operators that lower and compile, and then give a wrong answer or bring the compiler down.

Every row was seen with the versions that it names and is proved by ``tests/conformance/test_known_wrong.py``: when
IREE gets one right, that test fails and the row can go.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch.fx import Node

__all__ = ["KNOWN_WRONG", "KnownWrong", "why_known_wrong"]


@dataclasses.dataclass(frozen=True)
class KnownWrong:
    """One row: ``op`` is an overload packet's name; ``when`` narrows it down to some arguments."""

    op: str
    symptom: str
    when: Callable[[Node], bool] = lambda node: True
    versions: str = "IREE 3.13.0, torch-mlir 20261001"


def _reads_float(node: Node) -> bool:
    return _argument_dtype(node).is_floating_point


def _reads(*dtypes: torch.dtype) -> Callable[[Node], bool]:
    return lambda node: _argument_dtype(node) in dtypes


def _argument_dtype(node: Node) -> torch.dtype:
    for argument in node.all_input_nodes:
        value = argument.meta.get("val")
        if isinstance(value, torch.Tensor):
            return value.dtype
    return torch.float32


KNOWN_WRONG: tuple[KnownWrong, ...] = (
    KnownWrong("aten.isinf", "gives wrong results in IREE"),
    KnownWrong("aten.atan2", "gives NaN for two zeros in IREE"),
    KnownWrong("aten.tan", "loses accuracy near its poles in IREE"),
    KnownWrong("aten._upsample_nearest_exact1d", "picks other neighbours in IREE"),
    KnownWrong("aten._upsample_nearest_exact2d", "picks other neighbours in IREE"),
    KnownWrong("aten._upsample_nearest_exact3d", "picks other neighbours in IREE"),
    KnownWrong("aten.logcumsumexp", "gives wrong results in IREE"),
    KnownWrong("aten._embedding_bag", "gives wrong results in IREE"),
    KnownWrong("aten._embedding_bag_forward_only", "gives wrong results in IREE"),
    KnownWrong("aten.maximum", "drops NaN in IREE", _reads_float),
    KnownWrong("aten.minimum", "drops NaN in IREE", _reads_float),
    KnownWrong("aten.mm", "crashes IREE's compiler with 8-bit integers", _reads(torch.int8)),
    KnownWrong("aten.bmm", "crashes IREE's compiler with 8-bit integers", _reads(torch.int8)),
)

_BY_OP = {row.op: row for row in KNOWN_WRONG}


def why_known_wrong(node: Node) -> str | None:
    """The symptom, if the table has a row for this call."""
    row = _BY_OP.get(str(node.target).rpartition(".")[0])
    return row.symptom if row is not None and row.when(node) else None
