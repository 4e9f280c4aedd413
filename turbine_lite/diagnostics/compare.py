"""Whether a compiled result is as good as eager's."""

from __future__ import annotations

import dataclasses

import torch

__all__ = ["TOLERANCES", "Difference", "difference"]

# Relative to each element, and to the largest element of the tensor: compiled code adds up in another order, and
# rounds float16 and bfloat16 once where eager rounds after each operator. All other dtypes must agree exactly.
TOLERANCES: dict[torch.dtype, tuple[float, float]] = {
    torch.float64: (1e-7, 1e-9),
    torch.float32: (1e-3, 1e-4),
    torch.float16: (1e-2, 1e-2),
    torch.bfloat16: (5e-2, 5e-2),
    torch.complex128: (1e-7, 1e-9),
    torch.complex64: (1e-3, 1e-4),
}


@dataclasses.dataclass(frozen=True)
class Difference:
    """How a tensor differs from what it should be: ``text`` says it for a person.

    ``error`` is the largest absolute difference between two numbers; infinite where NaN, infinities, the shape, the
    strides or the dtype differ.
    """

    text: str
    error: float


def difference(got: torch.Tensor, want: torch.Tensor) -> Difference | None:
    """None if two tensors agree in dtype, shape, strides and, within :data:`TOLERANCES`, in their elements."""
    for what, a, b in (
        ("dtype", got.dtype, want.dtype),
        ("shape", tuple(got.shape), tuple(want.shape)),
        ("strides", _strides(got), _strides(want)),
    ):
        if a != b:
            return Difference(f"{what} {a} instead of {b}", float("inf"))
    if want.dtype not in TOLERANCES:
        return _exact_difference(got, want)
    return _difference_of_numbers(got, want)


def _strides(tensor: torch.Tensor) -> tuple[int, ...]:
    """The strides that matter: a dimension of at most one element may have any."""
    if not tensor.numel():
        return ()
    return tuple(stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1)


def _exact_difference(got: torch.Tensor, want: torch.Tensor) -> Difference | None:
    if torch.equal(got, want):
        return None
    wrong = got != want
    count = int(wrong.sum())
    error = float((got[wrong].double() - want[wrong].double()).abs().max())
    return Difference(f"{count} of {want.numel()} elements differ, by up to {error:g}", error)


def _difference_of_numbers(got: torch.Tensor, want: torch.Tensor) -> Difference | None:
    relative, to_largest = TOLERANCES[want.dtype]
    wide = torch.complex128 if want.is_complex() else torch.float64
    got, want = got.to(wide), want.to(wide)
    numbers = want.isfinite()
    same_others = got.isnan() == want.isnan()
    same_others &= numbers | want.isnan() | (got == want)
    size = want.abs().where(numbers, 0)
    allowed = relative * size + to_largest * (size.max() if size.numel() else 0)
    error = (got - want).abs().where(numbers, 0)
    wrong = ~same_others | (error > allowed)
    if not bool(wrong.any()):
        return None
    count = f"{int(wrong.sum())} of {want.numel()} elements"
    if not bool(same_others.all()):
        return Difference(f"{count} differ, NaN or infinity among them", float("inf"))
    largest = float(error.max())
    return Difference(f"{count} differ, by up to {largest:g} where the largest is {float(size.max()):g}", largest)
