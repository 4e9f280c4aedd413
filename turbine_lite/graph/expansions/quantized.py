"""PyTorch 2 export's quantisation operators, which are a namespace of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from turbine_lite.graph.expansions.expansion import Expansion, tensor_argument

__all__ = ["EXPANSIONS"]


def _quantize(x: Tensor, scale: Any, zero_point: Any, low: int, high: int, dtype: torch.dtype) -> Tensor:
    # In eager's order of operations: a product with the inverse scale, rounded half to even.
    inverse = 1.0 / scale
    return torch.clamp(torch.round(x.to(torch.float32) * inverse) + zero_point, low, high).to(dtype)


def _dequantize(
    x: Tensor, scale: Any, zero_point: Any, low: int, high: int, dtype: torch.dtype, *, out_dtype: Any = None
) -> Tensor:
    scaled: Tensor = (x.to(torch.float32) - zero_point) * scale
    return scaled.to(out_dtype or torch.float32)


def _along(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def per_channel(x: Tensor, scales: Tensor, zero_points: Any, axis: int, *args: Any, **kwargs: Any) -> Tensor:
        shape = [1] * x.dim()
        shape[axis] = -1
        points = 0 if zero_points is None else zero_points.reshape(shape)
        return function(x, scales.to(torch.float32).reshape(shape), points, *args, **kwargs)

    return per_channel


def _is_float32(node: Node) -> bool:
    value = tensor_argument(node)
    return value.dtype is torch.float32 or not value.is_floating_point()


# By name: the operators exist only once PyTorch's quantisation has been imported.
_NAMESPACE = "quantized_decomposed"
EXPANSIONS = {
    f"{_NAMESPACE}.quantize_per_tensor.default": Expansion(_quantize, _is_float32),
    f"{_NAMESPACE}.quantize_per_tensor.tensor": Expansion(_quantize, _is_float32),
    f"{_NAMESPACE}.dequantize_per_tensor.default": Expansion(_dequantize, _is_float32),
    f"{_NAMESPACE}.dequantize_per_tensor.tensor": Expansion(_dequantize, _is_float32),
    f"{_NAMESPACE}.quantize_per_channel.default": Expansion(_along(_quantize), _is_float32),
    f"{_NAMESPACE}.dequantize_per_channel.default": Expansion(_along(_dequantize), _is_float32),
}
