"""Transposed convolutions, and gradients of convolutions, with a kernel of dynamic size.

torch-mlir pads by ``dilation * (kernel - 1) - padding``; where that is negative, and not known to be, it writes
outside of the result. Without padding it never is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import Node

from turbine_lite.graph.expansions.expansion import Expansion
from turbine_lite.graph.sizes import is_static

__all__ = ["EXPANSIONS"]

aten = torch.ops.aten


def _cut_off_padding(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    *rest: Any,
) -> Tensor:
    """The padding of a transposed convolution is what is cut off at the borders of the result."""
    result = aten.convolution.default(x, weight, bias, stride, [0] * len(padding), *rest)
    return _without_borders(result, padding)


def _pad_before(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    *rest: Any,
) -> tuple[Tensor | None, ...]:
    """As of a convolution of the padded argument."""
    padded = F.pad(x, [width for width in reversed(padding) for _ in range(2)])
    of_x, *others = aten.convolution_backward.default(
        gradient, padded, weight, bias_sizes, stride, [0] * len(padding), *rest
    )
    return (None if of_x is None else _without_borders(of_x, padding), *others)


def _without_borders(x: Tensor, widths: Sequence[int]) -> Tensor:
    for dim, width in enumerate(widths, start=2):
        x = x.narrow(dim, width, x.shape[dim] - 2 * width)
    return x


def _is_padded_transposed(node: Node) -> bool:
    arguments: Any = node.args
    _, weight, _, _, padding, _, transposed, *_ = arguments
    return transposed and _is_padded_and_dynamic(weight, padding)


def _is_of_padded_forward(node: Node) -> bool:
    arguments: Any = node.args
    _, _, weight, _, _, padding, _, transposed, *_ = arguments
    return not transposed and _is_padded_and_dynamic(weight, padding)


def _is_padded_and_dynamic(weight: Node, padding: Sequence[int]) -> bool:
    return any(padding) and not is_static(weight.meta["val"].shape[2:])


EXPANSIONS = {
    aten.convolution.default: Expansion(_cut_off_padding, _is_padded_transposed),
    aten.convolution_backward.default: Expansion(_pad_before, _is_of_padded_forward),
}
