"""Random programs: operators over a growing list of tensors, with views, broadcasting, casts and in-place writes.

A program is data (a list of steps), so hypothesis can shrink it and a failure can be read. Floating-point numbers start
as quarters, and comparisons and orders are taken only of numbers that are still exact: a result that depends on the
last digit says nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

FLOATS = (torch.float32, torch.float64)
DTYPES = (*FLOATS, torch.int64, torch.int32, torch.uint8, torch.bool)


@dataclasses.dataclass(frozen=True)
class Value:
    """A tensor, and whether its numbers are exact (small multiples of 1/256)."""

    tensor: Tensor
    exact: bool


@dataclasses.dataclass(frozen=True)
class Step:
    """An operator of ``OPS`` on some of the values before it (modulo their number), with numbers to choose by."""

    op: str
    operands: tuple[int, ...]
    numbers: tuple[int, ...]


Op = Callable[[list[Value], tuple[int, ...]], Value | None]
OPS: dict[str, Op] = {}


def _op(function: Op) -> Op:
    OPS[function.__name__.strip("_")] = function
    return function


def _pick(choices: Any, number: int) -> Any:
    choices = list(choices)
    return choices[number % len(choices)]


def _is_number(tensor: Tensor) -> bool:
    return tensor.dtype is not torch.bool


@_op
def unary(v: list[Value], n: tuple[int, ...]) -> Value | None:
    x = v[0]
    if not _is_number(x.tensor):
        return Value(~x.tensor, True)
    function, keeps = _pick(
        [(torch.neg, True), (torch.abs, True), (F.relu, True), (torch.tanh, False), (torch.sigmoid, False),
         (torch.cos, False), (lambda t: (t.to(torch.float32).clamp(-4, 4)).exp(), False), (torch.square, False)],
        n[0],
    )  # fmt: skip
    return Value(function(x.tensor), x.exact and keeps)


@_op
def binary(v: list[Value], n: tuple[int, ...]) -> Value | None:
    a, b = v[:2]
    if not _broadcast(a.tensor, b.tensor):
        return None
    if not (_is_number(a.tensor) or _is_number(b.tensor)):
        return Value(_pick([torch.logical_and, torch.logical_or, torch.eq], n[0])(a.tensor, b.tensor), True)
    function, keeps = _pick(
        [(torch.add, True), (torch.sub, True), (torch.mul, False), (torch.maximum, True), (torch.minimum, True)], n[0]
    )
    if function is torch.sub and not (_is_number(a.tensor) and _is_number(b.tensor)):
        function = torch.add
    return Value(function(a.tensor, b.tensor), a.exact and b.exact and keeps)


@_op
def scalar(v: list[Value], n: tuple[int, ...]) -> Value | None:
    x, number = v[0], _pick([0.5, 2, -1, 3, 0.25], n[0])
    function, keeps = _pick([(torch.add, True), (torch.mul, False), (torch.eq, True), (torch.lt, True)], n[1])
    if not keeps or x.exact:
        return Value(function(x.tensor, number), x.exact and keeps)
    return Value(x.tensor + number, False)


@_op
def compare(v: list[Value], n: tuple[int, ...]) -> Value | None:
    a, b = v[:2]
    if not (a.exact and b.exact and _broadcast(a.tensor, b.tensor)):
        return None
    return Value(_pick([torch.lt, torch.ge, torch.eq, torch.ne], n[0])(a.tensor, b.tensor), True)


@_op
def where(v: list[Value], n: tuple[int, ...]) -> Value | None:
    condition, a, b = v[:3]
    if not condition.exact or not _broadcast(condition.tensor, a.tensor, b.tensor):
        return None
    return Value(torch.where(condition.tensor > 0, a.tensor, b.tensor), a.exact and b.exact)


@_op
def cast(v: list[Value], n: tuple[int, ...]) -> Value | None:
    x, dtype = v[0], _pick(DTYPES, n[0])
    if dtype not in FLOATS and not x.exact:
        return None
    if dtype is torch.uint8 and x.tensor.is_floating_point():
        return None  # of negative numbers undefined
    return Value(x.tensor.to(dtype), x.exact)


@_op
def reduce(v: list[Value], n: tuple[int, ...]) -> Value | None:
    x = v[0]
    if x.tensor.dim() == 0 or x.tensor.numel() == 0:
        return None
    # Over dynamic sizes a number of the program is symbolic, and no argument for a bool.
    dim, keep = n[0] % x.tensor.dim(), True if n[1] % 2 else False  # noqa: SIM210
    if not _is_number(x.tensor):
        return Value(_pick([torch.any, torch.all, torch.sum], n[2])(x.tensor, dim, keepdim=keep), True)
    name = _pick(["sum", "mean", "amax", "amin", "var", "argmax"], n[2])
    if name in ("mean", "var"):
        return Value(getattr(x.tensor.to(torch.float32), name)(dim, keepdim=keep), False)
    if name == "argmax":
        return Value(x.tensor.argmax(dim, keepdim=keep), True) if x.exact else None
    return Value(getattr(x.tensor, name)(dim, keepdim=keep), x.exact and name != "sum")


@_op
def view(v: list[Value], n: tuple[int, ...]) -> Value | None:
    x = v[0].tensor
    if x.dim() == 0:
        return Value(x.expand(3), v[0].exact)
    dim = n[0] % x.dim()
    size = x.shape[dim]
    views: list[Callable[[], Tensor]] = [
        lambda: x.transpose(dim, n[2] % x.dim()),
        lambda: x.unsqueeze(dim),
        lambda: x.squeeze(),
        lambda: x.reshape(-1),
        lambda: x.flip(dim),
        lambda: x.roll(n[2] % 5 - 2, dim),
        lambda: x.narrow(dim, n[2] % size, size - n[2] % size) if size else x,
        lambda: x.select(dim, n[2] % size) if size else x,
        lambda: x[(slice(None),) * dim + (slice(None, None, 2),)],
        lambda: x.unsqueeze(0).expand(2, *x.shape),
    ]
    return Value(_pick(views, n[1])(), v[0].exact)


@_op
def join(v: list[Value], n: tuple[int, ...]) -> Value | None:
    a, b = v[:2]
    if a.tensor.shape != b.tensor.shape:
        b = a
    if n[0] % 2 or a.tensor.dim() == 0:
        return Value(torch.stack([a.tensor, b.tensor], n[1] % (a.tensor.dim() + 1)), a.exact and b.exact)
    return Value(torch.cat([a.tensor, b.tensor], n[1] % a.tensor.dim()), a.exact and b.exact)


@_op
def matmul(v: list[Value], n: tuple[int, ...]) -> Value | None:
    a = v[0].tensor.to(torch.float32)
    if a.dim() < 2:
        return None
    return Value(a.clamp(-8, 8) @ a.clamp(-8, 8).transpose(-1, -2), False)


@_op
def normalise(v: list[Value], n: tuple[int, ...]) -> Value | None:
    x = v[0].tensor.to(torch.float32)
    if x.dim() == 0 or x.shape[-1] == 0:
        return None
    functions = [lambda t: t.softmax(-1), lambda t: t.log_softmax(-1), lambda t: F.layer_norm(t, t.shape[-1:], eps=0.1)]
    return Value(_pick(functions, n[0])(x.clamp(-8, 8)), False)


@_op
def index(v: list[Value], n: tuple[int, ...]) -> Value | None:
    x = v[0].tensor
    if x.dim() == 0 or 0 in x.shape:
        return None
    dim = n[0] % x.dim()
    size = x.shape[dim]
    at = torch.tensor([k % size for k in n])
    shape = [-1 if d == dim else 1 for d in range(x.dim())]
    wide = at.reshape(shape).expand([*x.shape[:dim], len(n), *x.shape[dim + 1 :]])
    ways: list[Callable[[], Tensor]] = [
        lambda: x.index_select(dim, at),
        lambda: x.gather(dim, wide),
        lambda: x[(slice(None),) * dim + (at - size,)],
        lambda: x.cumsum(dim) if x.dtype not in FLOATS else x.clone(),
        lambda: x.index_fill(dim, at, 1),
        lambda: x.scatter(dim, wide, 1),
    ]
    return Value(_pick(ways, n[1])(), v[0].exact)


@_op
def write(v: list[Value], n: tuple[int, ...]) -> Value | None:
    """Part of one value into part of another one, or of itself, in place; what shares its memory changes, too."""
    x, source = v[0].tensor, v[1].tensor
    if x.dim() == 0 or 0 in x.shape or source.numel() == 0 or v[0].exact is not v[1].exact:
        return None
    if any(size > 1 and stride == 0 for size, stride in zip(x.shape, x.stride(), strict=True)):
        return None  # eager refuses to write to expanded memory
    dim = n[0] % x.dim()
    start = n[1] % x.shape[dim]
    part = x.narrow(dim, start, x.shape[dim] - start)
    first = source.reshape(-1)[:1].reshape(()) if not _is_broadcast_to(source, part) else source
    if first.dtype in FLOATS and x.dtype not in FLOATS:
        return None
    if n[2] % 2 and _is_number(x):
        part.mul_(0)
    part.copy_(first.clone() if n[2] % 3 else first)
    return Value(x, v[0].exact)


def _broadcast(*tensors: Tensor) -> bool:
    # In Python that Dynamo traces: an exception of torch.broadcast_shapes it does not.
    for at in range(1, max(t.dim() for t in tensors) + 1):
        sizes = {t.shape[-at] for t in tensors if t.dim() >= at and t.shape[-at] != 1}
        if len(sizes) > 1:
            return False
    return True


def _is_broadcast_to(source: Tensor, target: Tensor) -> bool:
    if source.dim() > target.dim():
        return False
    return all(source.shape[-at] in (1, target.shape[-at]) for at in range(1, source.dim() + 1))


@dataclasses.dataclass(frozen=True)
class Program:
    """Steps over some arguments; the results are all values that the last steps gave."""

    steps: tuple[Step, ...]

    def __call__(self, *arguments: Tensor) -> list[Tensor]:
        """What the steps leave."""
        values = [Value(argument, True) for argument in arguments]
        # A view of an argument, so that values share memory from the start.
        values.append(Value(arguments[0].reshape(-1)[: arguments[0].numel() // 2 + 1], True))
        for step in self.steps:
            operands = [values[operand % len(values)] for operand in step.operands]
            result = OPS[step.op](operands, step.numbers)
            if result is not None and result.tensor.numel() <= 4096:
                values.append(result)
        return [value.tensor for value in values[-4:]]


_NUMBERS = st.tuples(*[st.integers(0, 59)] * 3)
_STEPS = st.builds(Step, st.sampled_from(sorted(OPS)), _NUMBERS, _NUMBERS)
PROGRAMS = st.builds(lambda steps: Program(tuple(steps)), st.lists(_STEPS, min_size=1, max_size=8))


@st.composite
def arguments(draw: Callable[..., Any]) -> list[Tensor]:
    """Two or three small tensors of all strides, of numbers that are exact in every dtype."""
    tensors = []
    for _ in range(draw(st.integers(2, 3))):
        dtype = draw(st.sampled_from(DTYPES))
        shape = draw(st.lists(st.sampled_from([1, 2, 3, 4, 5]), max_size=3))
        generator = torch.Generator().manual_seed(draw(st.integers(0, 9)))
        numbers = torch.randint(-8, 9, (*shape, 2), generator=generator)
        if dtype is torch.uint8:
            numbers = numbers.abs()
        tensor = (numbers / 4 if dtype in FLOATS else numbers).to(dtype)
        layout = draw(st.sampled_from(["dense", "strided", "transposed"]))
        tensor = tensor[..., 0] if layout == "strided" else tensor[..., 0].contiguous()
        tensors.append(tensor.transpose(0, -1) if layout == "transposed" and shape else tensor)
    return tensors
