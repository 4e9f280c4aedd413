"""Calls in Dynamo's graph that AOTAutograd refuses, or decomposes into something else than eager computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload, OpOverloadPacket
from torch._prims_common import suggest_memory_format
from torch.fx import GraphModule, Node

__all__ = ["replace_before_autograd"]

aten = torch.ops.aten


def replace_before_autograd(gm: GraphModule) -> None:
    """Replace such calls, in place, by functions of the same meaning."""
    for module in gm.modules():
        if isinstance(module, GraphModule) and [node for node in module.graph.nodes if _replace(node)]:
            module.recompile()


def _replace(node: Node) -> bool:
    target = node.target
    if target in _BUILTINS and not _has_list_of_scales(node):
        target = _BUILTINS[target]
    if isinstance(target, OpOverloadPacket) and hasattr(target, "default"):
        target = target.default
    if not isinstance(target, OpOverload):
        return False
    function = _function_for(node, target)
    if function is None:
        return False
    names = [argument.name for argument in target._schema.arguments]
    node.args = (*node.args, *(node.kwargs[name] for name in names if name in node.kwargs))
    node.kwargs = {}
    node.target = function
    return True


def _function_for(node: Node, target: OpOverload) -> Callable[..., Any] | None:
    if target.namespace == "prims" and target.is_view:  # AOTAutograd takes views of the aten namespace alone
        function: Callable[..., Any] = target.impl_aten  # type: ignore[attr-defined]  # set by torch._prims
        return function
    if target in _UPSAMPLINGS and len(node.args) + len(node.kwargs) > 2:
        return _upsample_nearest
    return None


_BUILTINS: dict[Any, OpOverload] = {
    torch._C._nn.upsample_nearest1d: aten.upsample_nearest1d.default,
    torch._C._nn.upsample_nearest2d: aten.upsample_nearest2d.default,
    torch._C._nn.upsample_nearest3d: aten.upsample_nearest3d.default,
}
_UPSAMPLINGS = frozenset(_BUILTINS.values())


def _has_list_of_scales(node: Node) -> bool:
    """Whether the call is of the overload ``vec``, whose scales agree with the sizes."""
    third = node.args[2] if len(node.args) == 3 else node.kwargs.get("scale_factors", 1.0)
    return not isinstance(third, float)


def _upsample_nearest(x: Tensor, output_size: Sequence[int], *scales: float | None) -> Tensor:
    """As eager's kernel does it for a scale that need not agree with the sizes.

    An index does not go beyond the last element, and of two dimensions a scale is not looked at for equal and for
    doubled sizes (``nearest_idx`` in ATen's ``UpSample.h``). PyTorch's decomposition has neither.
    """
    indices: list[Tensor | None] = [None, None]
    rank = len(output_size)
    for dim, (size, scale) in enumerate(zip(output_size, scales or [None] * rank, strict=True)):
        old = x.shape[2 + dim]
        position = torch.arange(size, device=x.device)
        if rank == 2 and size == 2 * old:
            position = position >> 1
        elif rank != 2 or size != old:
            step = 1.0 / scale if scale is not None and scale > 0 else old / size
            position = (position * torch.tensor(step, dtype=torch.float32)).floor().to(torch.int64).clamp(max=old - 1)
        indices.append(position.reshape(-1, *[1] * (rank - 1 - dim)))
    result: Tensor = aten._unsafe_index(x, indices)
    return result.contiguous(memory_format=suggest_memory_format(x))
