"""What the kernels are called through: functions of tensors, as nodes of a graph that run in eager."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

__all__ = [
    "HAS_MKL",
    "HAS_ONEDNN",
    "NO_ACTIVATION",
    "Activation",
    "Bounds",
    "convolution",
    "fold_bias",
    "fold_weight",
    "linear",
    "linear_by_mkl",
    "pack_convolution",
    "pack_linear",
    "pack_linear_for_mkl",
    "write_slice",
]

# Overloads, not packets of these: choosing one on each call takes longer than small kernels do.
_convolution_pointwise = torch.ops.mkldnn._convolution_pointwise.default
_convolution_pointwise_binary = torch.ops.mkldnn._convolution_pointwise.binary
_linear_pointwise = torch.ops.mkldnn._linear_pointwise.default
_linear_pointwise_binary = torch.ops.mkldnn._linear_pointwise.binary
_reorder_convolution_weight = torch.ops.mkldnn._reorder_convolution_weight.default
_reorder_linear_weight = torch.ops.mkldnn._reorder_linear_weight.default
_slice = torch.ops.aten.slice.Tensor

# Builds of PyTorch may lack them.
HAS_ONEDNN: bool = torch._C._has_mkldnn
HAS_MKL: bool = HAS_ONEDNN and torch._C.has_mkl

if HAS_MKL:
    _mkl_linear = torch.ops.mkl._mkl_linear.default
    _mkl_reorder_linear_weight = torch.ops.mkl._mkl_reorder_linear_weight.default

# oneDNN's name of an activation, its numbers and its variant.
Activation = tuple[str, tuple[float, ...], str]

NO_ACTIVATION: Activation = ("none", (), "")

# The least and the largest value, None for no such.
Bounds = tuple[float | None, float | None]


def fold_weight(weight: Tensor, gamma: Tensor | None, variance: Tensor, epsilon: float) -> Tensor:
    """The weight (out, ...) of a convolution that does the batch norm after it, too."""
    return weight * _scale(gamma, variance, epsilon).view(-1, *[1] * (weight.dim() - 1))


def fold_bias(
    bias: Tensor | None, gamma: Tensor | None, beta: Tensor | None, mean: Tensor, variance: Tensor, epsilon: float
) -> Tensor:
    """The bias (out,) of a convolution that does the batch norm after it, too."""
    shift = (mean if bias is None else mean - bias) * -_scale(gamma, variance, epsilon)
    return shift if beta is None else shift + beta


def _scale(gamma: Tensor | None, variance: Tensor, epsilon: float) -> Tensor:
    scale = torch.rsqrt(variance + epsilon)
    return scale if gamma is None else scale * gamma


def pack_convolution(
    weight: Tensor,
    padding: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    input_size: Sequence[int],
) -> Tensor:
    """The weight (out, in / groups, height, width) as oneDNN wants it for inputs of ``input_size``; opaque."""
    packed: Tensor = _reorder_convolution_weight(weight, padding, stride, dilation, groups, input_size)
    return packed


def convolution(
    x: Tensor,
    other: Tensor | None,
    weight: Tensor,
    bias: Tensor | None,
    padding: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    activation: Activation,
    bounds: Bounds | None,
) -> Tensor:
    """``clamp(activation(conv2d(x, weight, bias) + other), *bounds)``, by oneDNN.

    Args:
        x: (batch, in, height, width), channels last.
        other: of the result's shape, channels last, or None.
        weight: from :func:`pack_convolution`.
        bias: (out,) or None.
        padding, stride, dilation, groups: as ``conv2d`` has them.
        activation: applied first.
        bounds: applied in place, by ATen: oneDNN's own ``relu`` and ``hardtanh`` make 0 of NaN.

    Returns:
        (batch, out, height, width), channels last.
    """
    geometry = (padding, stride, dilation, groups)
    if other is None:
        result = _convolution_pointwise(x, weight, bias, *geometry, *activation)
    else:
        result = _convolution_pointwise_binary(x, other, weight, bias, *geometry, "add", None, None, [], None)
    return _clamped(result, bounds).contiguous(memory_format=torch.channels_last)


def pack_linear(weight: Tensor, rows: int) -> Tensor:
    """The weight (in, out) of a matmul as oneDNN wants it for ``rows`` rows; opaque."""
    packed: Tensor = _reorder_linear_weight(weight.t().contiguous(), rows)
    return packed


def linear(
    x: Tensor,
    other: Tensor | None,
    weight: Tensor,
    bias: Tensor | None,
    activation: Activation,
    bounds: Bounds | None,
) -> Tensor:
    """``clamp(activation(x @ weight + bias + other), *bounds)``, by oneDNN. Where there is a sum, no activation.

    Args:
        x: (..., in), row-major.
        other: (..., out), row-major, or None.
        weight: from :func:`pack_linear`.
        bias: (out,) or None.
        activation, bounds: as for :func:`convolution`.

    Returns:
        (..., out), row-major.
    """
    if other is None:
        result = _linear_pointwise(x, weight, bias, *activation)
    else:
        result = _linear_pointwise_binary(x, other, weight, bias, "add")
    return _clamped(result, bounds)


def pack_linear_for_mkl(weight: Tensor, rows: int) -> Tensor:
    """The weight (in, out) of a matmul as MKL wants it for ``rows`` rows; opaque."""
    packed: Tensor = _mkl_reorder_linear_weight(weight.t().contiguous(), rows)
    return packed


def linear_by_mkl(
    x: Tensor,
    other: Tensor | None,
    packed: Tensor,
    weight: Tensor,
    rows: int,
    bias: Tensor | None,
    activation: Activation,
    bounds: Bounds | None,
) -> Tensor:
    """What :func:`linear` does, by MKL, and by ATen what follows the matmul.

    Args:
        packed: from :func:`pack_linear_for_mkl`.
        weight: (in, out), what was packed.
        rows: of ``x``, as a matrix.
        x, other, bias, activation, bounds: as for :func:`linear`.
    """
    result: Tensor = _mkl_linear(x, packed, weight.t(), bias, rows)
    if other is not None:
        result.add_(other)
    return _clamped(_ACTIVATIONS[activation[0]](result, activation), bounds)


# By oneDNN's names. The result is nobody else's.
_ACTIVATIONS: dict[str, Callable[[Tensor, Activation], Tensor]] = {
    "none": lambda x, _: x,
    "swish": lambda x, _: functional.silu(x, inplace=True),
    "sigmoid": lambda x, _: x.sigmoid_(),
    "tanh": lambda x, _: x.tanh_(),
    "hardswish": lambda x, _: functional.hardswish(x, inplace=True),
    "gelu": lambda x, activation: functional.gelu(x, approximate=activation[2]),
    "leaky_relu": lambda x, activation: functional.leaky_relu(x, activation[1][0], inplace=True),
}


def write_slice(
    x: Tensor, source: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    """``x``, of which a slice along ``dim`` is overwritten with ``source``; see ``aten::slice_scatter``."""
    _slice(x, dim, start, end, step).copy_(source)
    return x


def _clamped(result: Tensor, bounds: Bounds | None) -> Tensor:
    """In place."""
    if bounds is None:
        return result
    return result.relu_() if bounds == (0, None) else result.clamp_(*bounds)
