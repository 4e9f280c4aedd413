"""PyTorch's operator database against the backend.

``python -m tests.conformance.opinfo_table`` runs every operator in every dtype that PyTorch lists for CPUs and writes
the table ``opinfo.json`` that ``test_opinfo.py`` checks: from a column (a dtype, ``"float32 grad"``, ``"float32
inplace"``, ...) and an operator to ``"native"`` or to the reasons for which parts of it run in eager. A result that
differs from eager's is never written to the table: the run lists it and ends with exit status 1.

The samples of an operator are run in one graph, which compiles in a fraction of the time that one graph for each takes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._dynamo.utils import counters
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map

from tests.helpers import TOLERANCE

SAMPLES = 4

_TOLERANCE = {**TOLERANCE, torch.complex32: TOLERANCE[torch.float16]}

_NARROW = (torch.float16, torch.bfloat16, torch.float32)

# No two calls of these agree, whoever runs them: what they return is uninitialised or an address.
NOT_COMPARABLE = frozenset({"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"})


def name_of(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


OPS = {name_of(op): op for op in op_db}
_DTYPES = {str(dtype).removeprefix("torch."): dtype for op in op_db for dtype in op.dtypes}
_WITH_GRADIENTS = (torch.float32, torch.float64)
COLUMNS = (*sorted(_DTYPES), "float32 grad", "float64 grad", "float32 inplace")


def names_in(column: str) -> list[str]:
    """The operators that a column has rows for."""
    dtype_name, _, what = column.partition(" ")
    dtype = _DTYPES[dtype_name]
    names = []
    for name, op in OPS.items():
        if what == "grad":
            has_row = op.supports_autograd and dtype in op.backward_dtypes
        elif what == "inplace":
            has_row = op.inplace_variant is not None and dtype in op.dtypes
        else:
            has_row = dtype in op.dtypes
        if has_row:
            names.append(name)
    return sorted(names)


def run_op(name: str, column: str) -> str:
    """``"native"``, ``"no graph"``, or the reasons for eager parts, over a few samples.

    Raises:
        AssertionError: a result, a gradient or an argument differs from eager's.
    """
    dtype_name, _, what = column.partition(" ")
    op = OPS[name]
    torch.manual_seed(0)  # the samples are drawn
    for function in _functions_of(op, what):
        samples = list(_accepted(op, function, _DTYPES[dtype_name], what))
        if samples:
            break
    if not samples:
        return "no graph"
    samples, comparable = _spread(samples), name not in NOT_COMPARABLE
    reasons = _check(function, samples, what, comparable=comparable)
    if reasons is None and len(samples) > 1:  # one sample that Dynamo does not trace keeps all from being compiled
        parts = [_check(function, [sample], what, comparable=comparable) for sample in samples]
        reasons = sorted({reason for part in parts for reason in part or ()}) if parts != [None] * len(parts) else None
    return "no graph" if reasons is None else "; ".join(reasons) or "native"


def _spread(samples: list[Any]) -> list[Any]:
    """A few of the samples: the first, the last and some between."""
    last = len(samples) - 1
    return [samples[i] for i in sorted({round(k * last / (SAMPLES - 1)) for k in range(SAMPLES)})] if samples else []


def _functions_of(op: Any, what: str) -> Iterator[Callable[..., Any]]:
    """The operator, in the forms in which it may take the database's samples."""
    if what == "inplace":
        yield op.inplace_variant
        return
    # The database wraps random operators in a function that sets the seed, which Dynamo does not trace.
    prefix, _, plain = op.name.rpartition(".")
    if prefix == "nn.functional" and not op.variant_test_name and hasattr(torch.nn.functional, plain):
        yield getattr(torch.nn.functional, plain)
    yield op.op


def _accepted(op: Any, function: Callable[..., Any], dtype: torch.dtype, what: str) -> Iterator[Any]:
    for sample in op.sample_inputs("cpu", dtype, requires_grad=what == "grad"):
        arguments = (sample.input, *sample.args)
        # What eager refuses says nothing about us.
        if _is_accepted(function, (arguments, sample.kwargs), what):
            yield arguments, sample.kwargs


def _is_accepted(function: Callable[..., Any], sample: Any, what: str) -> bool:
    """Whether eager runs a sample, and its gradient; what is no differentiable tensor has none."""
    try:
        results, _ = _run(functools.partial(_call_first, function), clone([sample]), what)
    except Exception:  # eager refuses samples with whatever error its kernels raise
        return False
    return what != "grad" or next(_differentiable(results[0]), None) is not None


def _check(function: Callable[..., Any], samples: Sequence[Any], what: str, *, comparable: bool) -> list[str] | None:
    """The reasons for eager parts; None if Dynamo left everything to eager."""
    torch._dynamo.reset()
    counters.clear()

    program = functools.partial(_call_all if len(samples) > 1 else _call_first, function)
    want, want_inputs = _run(program, clone(list(samples)), what)
    try:
        got, got_inputs = _run(torch.compile(program, backend="turbine_lite_cpu"), clone(list(samples)), what)
    except Exception:  # whatever it is: what PyTorch itself refuses says nothing about us
        if _is_refused_by_pytorch(program, samples, what):
            return None
        raise
    if comparable:
        exact = functools.partial(_exact, program, samples, what)
        try:
            same((got, got_inputs), (want, want_inputs), exact)
        except AssertionError:
            if _is_the_same_without_us(program, samples, what, got, exact):
                return ["PyTorch decomposes it into something else than eager computes"]
            raise
    if not counters["turbine_lite"]["graphs"]:
        return None
    reasons = sorted(key.removeprefix("eager ") for key in counters["turbine_lite"] if key.startswith("eager "))
    # What is left beside an operator in eager may be too little for a region: no news.
    return [reason for reason in reasons if not reason.endswith(": small")]


def _is_refused_by_pytorch(program: Callable[[Any], list[Any]], samples: Sequence[Any], what: str) -> bool:
    """Whether Dynamo or AOTAutograd fail on a program, so that no backend has a part in it."""
    torch._dynamo.reset()
    try:
        _run(torch.compile(program, backend="aot_eager"), clone(list(samples)), what)
    except Exception:  # whatever PyTorch raises
        return True
    return False


def _is_the_same_without_us(
    program: Callable[[Any], list[Any]], samples: Sequence[Any], what: str, got: Any, exact: Callable[[], Any]
) -> bool:
    """Whether the captured graph, run in eager, has our results: then it is not the graph of what eager computes."""
    torch._dynamo.reset()
    captured, _ = _run(torch.compile(program, backend="aot_eager"), clone(list(samples)), what)
    try:
        same(got, captured, exact)
    except AssertionError:
        return False
    return True


def _call_all(function: Callable[..., Any], samples: Any) -> list[Any]:
    return [function(*arguments, **kwargs) for arguments, kwargs in samples]


def _call_first(function: Callable[..., Any], samples: Any) -> list[Any]:
    # Dynamo can break a graph here, and not in a comprehension.
    arguments, kwargs = samples[0]
    return [function(*arguments, **kwargs)]


def _run(program: Callable[[Any], list[Any]], samples: Any, what: str) -> tuple[Any, Any]:
    torch.manual_seed(0)
    results = program(samples)
    if what != "grad":
        return results, samples
    total = sum((r * weight).sum() for r, weight in zip(*_weighted(results), strict=True))
    leaves = [t for t in tree_leaves(samples) if isinstance(t, torch.Tensor) and t.requires_grad]
    gradients = torch.autograd.grad(total, leaves, allow_unused=True)
    return (results, gradients), samples


def _weighted(results: Any) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The differentiable results, and weights that make a sum of them depend on each element differently."""
    tensors = list(_differentiable(results))
    return tensors, [torch.linspace(0.5, 1.5, t.numel()).reshape(t.shape).to(t.dtype) for t in tensors]


def _differentiable(result: Any) -> Iterator[torch.Tensor]:
    for leaf in tree_leaves(result):
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad and leaf.layout is torch.strided:
            yield leaf.real if leaf.is_complex() else leaf


def _exact(program: Callable[[Any], list[Any]], samples: Any, what: str) -> Any:
    """The results in float64."""

    def widen(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or leaf.dtype not in _NARROW:
            return leaf
        return leaf.detach().double().requires_grad_(leaf.requires_grad)

    return _run(program, tree_map(widen, clone(list(samples))), what)


def same(got: Any, want: Any, exact: Callable[[], Any]) -> None:
    """Raise AssertionError where two results differ in structure, dtype, shape or value.

    Where the values differ by more than the tolerance, ours must be about as near to the exact ones as eager's: some
    of the database's samples are ill-conditioned.
    """
    got_leaves, got_spec = tree_flatten(got)
    want_leaves, want_spec = tree_flatten(want)
    assert got_spec == want_spec, f"structure {got_spec}, eager {want_spec}"
    for position, (a, b) in enumerate(zip(got_leaves, want_leaves, strict=True)):
        if not isinstance(b, torch.Tensor):
            assert a == b or (a != a and b != b), f"{a!r}, eager {b!r}"
            continue
        assert a.dtype == b.dtype, f"dtype {a.dtype}, eager {b.dtype}"
        assert a.layout == b.layout, f"layout {a.layout}, eager {b.layout}"
        assert a.shape == b.shape, f"shape {tuple(a.shape)}, eager {tuple(b.shape)}"
        rtol, atol = _TOLERANCE.get(b.dtype, (0.0, 0.0))
        try:
            torch.testing.assert_close(a.detach(), b.detach(), rtol=rtol, atol=atol, equal_nan=True)
        except AssertionError:
            if b.dtype not in _NARROW or not _is_as_accurate(a, b, tree_leaves(exact())[position]):
                raise


def _is_as_accurate(got: torch.Tensor, want: torch.Tensor, exact: torch.Tensor) -> bool:
    ours, eagers = ((t.detach().double() - exact.detach()).abs() for t in (got, want))
    is_number = ours.isfinite() & eagers.isfinite()
    # Half precision may overflow in the middle of what we compute in float32.
    is_better = ours <= _TOLERANCE[got.dtype][0] * exact.detach().abs()
    same_elsewhere = torch.equal(got[~is_number & ~is_better].nan_to_num(), want[~is_number & ~is_better].nan_to_num())
    largest = eagers[is_number].max() if is_number.any() else 0.0
    return same_elsewhere and bool((ours[is_number] <= 4 * largest).all())


def clone(value: Any) -> Any:
    """A copy of a sample's arguments with the same strides and the same need of gradients."""

    def one(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or leaf.layout is not torch.strided:
            return leaf
        copy = leaf.detach().clone(memory_format=torch.preserve_format)
        return copy.requires_grad_(leaf.requires_grad)

    return tree_map(one, value)
