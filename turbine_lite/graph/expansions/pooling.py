"""Pooling as a walk over the taps of the window, for the forms that torch-mlir does not lower."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import cast

import torch
from torch import Tensor
from torch.fx import Node
from torch.nn import functional as F

from turbine_lite.graph.expansions.expansion import NARROW, Condition, Expansion, in_float32, tensor_argument

__all__ = ["EXPANSIONS"]

aten = torch.ops.aten

# A window of more taps makes a program of that many operations.
_MOST_TAPS = 64


class _Window:
    """A pooling window over the last ``rank`` dimensions of a tensor; ``out`` says how many there are of it."""

    def __init__(
        self,
        x: Tensor,
        rank: int,
        kernel: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        ceil_mode: bool,
    ) -> None:
        self.kernel, self.dilation = _of_length(kernel, rank), _of_length(dilation, rank)
        self.stride = _of_length(stride, rank) if stride else self.kernel
        self.padding = _of_length(padding, rank)
        self.sizes = x.shape[-rank:]
        self.out = [self._count(i, ceil_mode) for i in range(rank)]

    def _count(self, i: int, ceil_mode: bool) -> int:
        stride, padding = self.stride[i], self.padding[i]
        span = self.sizes[i] + 2 * padding - self.dilation[i] * (self.kernel[i] - 1) - 1
        count = (span + (stride - 1 if ceil_mode else 0)) // stride + 1
        # The last window must begin inside of the tensor or its left padding.
        return count - 1 if ceil_mode and (count - 1) * stride >= self.sizes[i] + padding else count

    def padded(self, x: Tensor, value: float) -> Tensor:
        """``x`` with room for every tap; ceil_mode lets the last windows reach beyond the padding."""
        pads: list[int] = []
        for i in reversed(range(len(self.out))):
            needed = (self.out[i] - 1) * self.stride[i] + (self.kernel[i] - 1) * self.dilation[i] + 1
            pads += [self.padding[i], max(0, needed - self.sizes[i] - self.padding[i])]
        return F.pad(x, pads, value=value) if any(pads) else x

    def taps(self, padded: Tensor) -> Iterator[tuple[tuple[int, ...], Tensor]]:
        """Each tap's offset and its values for all windows."""
        for offset in itertools.product(*map(range, self.kernel)):
            values = padded
            for i, tap in enumerate(offset):
                dim, start = i - len(self.out), tap * self.dilation[i]
                stop = start + (self.out[i] - 1) * self.stride[i] + 1
                values = aten.slice.Tensor(values, dim, start, stop, self.stride[i])
            yield offset, values

    @property
    def is_everything(self) -> bool:
        """Whether there is one window, with all of the tensor in it."""
        sizes = zip(self.kernel, self.padding, self.sizes, strict=True)
        return all(count == 1 for count in self.out) and all(k - p >= size for k, p, size in sizes)

    def starts(self, i: int, device: torch.device) -> Tensor:
        """Where the windows begin in dimension ``i``."""
        starts = torch.arange(self.out[i], device=device) * self.stride[i] - self.padding[i]
        return starts.reshape([-1 if j == i else 1 for j in range(len(self.out))])

    def flat_index(self, positions: Sequence[Tensor]) -> Tensor:
        """The index of a position in the flattened spatial dimensions, as pooling returns it."""
        index = positions[0]
        for i in range(1, len(positions)):
            index = index * self.sizes[i] + positions[i]
        return index


def _of_length(values: Sequence[int], rank: int) -> list[int]:
    return list(values) * rank if len(values) == 1 else list(values)


def _lowest(dtype: torch.dtype) -> float:
    return -math.inf if dtype.is_floating_point else torch.iinfo(dtype).min


def _max_pool(rank: int) -> Callable[..., tuple[Tensor, Tensor]]:
    def max_pool(
        x: Tensor,
        kernel: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        dilation: Sequence[int] = (1,),
        ceil_mode: bool = False,
    ) -> tuple[Tensor, Tensor]:
        window = _Window(x, rank, kernel, stride, padding, dilation, ceil_mode)
        starts = [window.starts(i, x.device) for i in range(rank)]
        # Eager begins with the first tap inside of the tensor, and goes on to larger values and to NaN.
        inside = [s + ((d - 1 - s) // d).clamp_min(0) * d for s, d in zip(starts, window.dilation, strict=True)]
        best = torch.full([*x.shape[:-rank], *window.out], _lowest(x.dtype), dtype=x.dtype, device=x.device)
        index = window.flat_index(inside).expand(best.shape)
        for offset, values in window.taps(window.padded(x, _lowest(x.dtype))):
            taken = values > best
            if x.dtype.is_floating_point:
                taken = taken | values.isnan()
            at = [s + o * d for s, o, d in zip(starts, offset, window.dilation, strict=True)]
            index = torch.where(taken, window.flat_index(at), index)
            best = torch.where(taken, values, best)
        return best, index

    return max_pool


def _avg_pool(rank: int) -> Callable[..., Tensor]:
    def avg_pool(
        x: Tensor,
        kernel: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:
        window = _Window(x, rank, kernel, stride, padding, (1,), ceil_mode)
        wide = x.to(torch.float32) if x.dtype in NARROW else x
        if window.is_everything:
            total = wide.sum(list(range(-rank, 0)), keepdim=True)
        else:
            total = functools.reduce(operator.add, (values for _, values in window.taps(window.padded(wide, 0))))
        if divisor_override is not None:
            return (total / divisor_override).to(x.dtype)
        return (total / _window_sizes(window, count_include_pad, x.device)).to(x.dtype)

    return avg_pool


def _window_sizes(window: _Window, count_include_pad: bool, device: torch.device) -> Tensor:
    """How many elements each window averages: those beyond the padding never count."""
    count = torch.ones([1] * len(window.out), dtype=torch.int64, device=device)
    for i, size in enumerate(window.sizes):
        start = window.starts(i, device)
        end = (start + window.kernel[i]).clamp_max(size + window.padding[i])
        if not count_include_pad:
            start, end = start.clamp_min(0), end.clamp_max(size)
        count = count * (end - start)
    return count


def _adaptive_max_pool2d(x: Tensor, output_size: Sequence[int]) -> tuple[Tensor, Tensor]:
    rows, columns = x.shape[-2:]
    best, index = [], []
    for i in range(output_size[0]):
        top, bottom = i * rows // output_size[0], -(-(i + 1) * rows // output_size[0])
        for j in range(output_size[1]):
            left, right = j * columns // output_size[1], -(-(j + 1) * columns // output_size[1])
            cell = x[..., top:bottom, left:right].flatten(-2)
            value, at = torch.max(cell, -1)
            width = right - left
            best.append(value)
            index.append((at // width + top) * columns + at % width + left)
    shape = (*x.shape[:-2], *output_size)
    return torch.stack(best, -1).reshape(shape), torch.stack(index, -1).reshape(shape)


def _is_small(rank: int) -> Condition:
    def is_small(node: Node) -> bool:
        sizes = tensor_argument(node).shape[-rank:]
        taps = math.prod(_of_length(cast("Sequence[int]", node.args[1]), rank))
        return taps <= _MOST_TAPS and all(isinstance(size, int) and size > 0 for size in sizes)

    return is_small


def _argument(node: Node, position: int, name: str, default: object) -> object:
    return node.args[position] if len(node.args) > position else node.kwargs.get(name, default)


def _max_pool_needs_taps(node: Node) -> bool:
    wants_index = any(user.target is operator.getitem and user.args[1] == 1 for user in node.users)
    special = bool(_argument(node, 5, "ceil_mode", False)) or tensor_argument(node).dim() == 3 or wants_index
    return special and _is_small(2)(node)


def _avg_pool_needs_taps(node: Node) -> bool:
    # torch-mlir takes an empty list of strides for no stride where it is given.
    no_stride = node.args[2:3] == ([],)
    ceil_mode = bool(_argument(node, 4, "ceil_mode", False))
    special = ceil_mode or tensor_argument(node).dim() == 3 or no_stride
    return special and (_is_small(2)(node) or _averages_everything(node, ceil_mode))


def _averages_everything(node: Node, ceil_mode: bool) -> bool:
    x = tensor_argument(node)
    if not all(isinstance(size, int) and size > 0 for size in x.shape[-2:]):
        return False
    kernel = cast("Sequence[int]", node.args[1])
    stride = cast("Sequence[int]", _argument(node, 2, "stride", []))
    padding = cast("Sequence[int]", _argument(node, 3, "padding", [0]))
    return _Window(x, 2, kernel, stride, padding, (1,), ceil_mode).is_everything


def _has_few_cells(node: Node) -> bool:
    cells = node.args[1]
    assert isinstance(cells, (list, tuple))
    sizes = (*cells, *tensor_argument(node).shape[-2:])
    static = all(isinstance(size, int) and size > 0 for size in sizes)
    return static and math.prod(cells) <= _MOST_TAPS


def _is_narrow(node: Node) -> bool:
    return tensor_argument(node).dtype in NARROW


EXPANSIONS = {
    aten.max_pool2d_with_indices.default: Expansion(_max_pool(2), _max_pool_needs_taps),
    aten.max_pool3d_with_indices.default: Expansion(_max_pool(3), _is_small(3)),
    aten.avg_pool2d.default: Expansion(_avg_pool(2), _avg_pool_needs_taps),
    aten.avg_pool3d.default: Expansion(_avg_pool(3), _is_small(3)),
    aten.adaptive_max_pool2d.default: Expansion(_adaptive_max_pool2d, _has_few_cells),
    # torch-mlir's masks of bfloat16 do not link. Eager adds in half precision here, and is less exact.
    aten._adaptive_avg_pool3d.default: Expansion(in_float32(aten._adaptive_avg_pool3d.default), _is_narrow),
}
