"""Small programs, each run in eager and through ``turbine_lite_cpu`` and compared in everything its caller can see.

``@program`` registers a function, or a class of modules, with the arguments of one call or of several in a row.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch._dynamo.utils import counters
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map

from tests.helpers import TOLERANCE

__all__ = ["PROGRAMS", "Program", "check", "flags", "ints", "normal", "positive", "program", "special"]

Inputs = Callable[[], tuple[Any, ...]]


@dataclasses.dataclass(frozen=True)
class Program:
    """A program and what is expected of it.

    Attributes:
        build: makes the function or the module.
        calls: makers of arguments, one for each call; all calls go to the same compiled program.
        grad: run forward and backward; else both runs are under ``no_grad``.
        dynamic: compile with ``dynamic=True``.
        breaks: Dynamo breaks the graph.
        tolerance: in place of the one of each dtype.
        eager: operators that may run in eager, and the kind of reason for each, or several: "known-wrong, dtype".
    """

    family: str
    name: str
    build: Callable[[], Callable[..., Any]]
    calls: tuple[Inputs, ...]
    grad: bool
    dynamic: bool
    breaks: bool
    tolerance: tuple[float, float] | None
    eager: Mapping[str, str]


PROGRAMS: dict[str, Program] = {}


def program(
    family: str,
    *,
    inputs: Inputs | tuple[Inputs, ...],
    grad: bool = False,
    dynamic: bool = False,
    breaks: bool = False,
    tolerance: tuple[float, float] | None = None,
    eager: Mapping[str, str] | None = None,
) -> Callable[[Any], Any]:
    """Register a function, or a class of modules that is made without arguments."""

    def register(target: Any) -> Any:
        name = f"{family}-{target.__name__}"
        assert name not in PROGRAMS, f"two programs named {name}"
        build = target if isinstance(target, type) else lambda: target
        calls = inputs if isinstance(inputs, tuple) else (inputs,)
        PROGRAMS[name] = Program(family, name, build, calls, grad, dynamic, breaks, tolerance, eager or {})
        return target

    return register


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64).to(dtype)


def positive(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.rand(shape, dtype=torch.float64).add(0.25).to(dtype)


def ints(*shape: int, low: int = -9, high: int = 10, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.randint(low, high, shape, dtype=dtype)


def flags(*shape: int) -> torch.Tensor:
    return torch.randint(0, 2, shape) == 1


def special(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Numbers at which implementations part ways."""
    inf, nan = float("inf"), float("nan")
    return torch.tensor([nan, inf, -inf, 0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.5, 100.0, -100.0], dtype=dtype)


@dataclasses.dataclass(frozen=True)
class _Outcome:
    results: Any
    arguments: Any
    state: Any
    gradients: Any
    aliases: Any
    random_states: Any


def check(program: Program) -> None:
    """Raise AssertionError where the compiled program differs from eager, or runs in eager beyond what it lists."""
    want = _run(program, lambda function: function)
    # By default Dynamo leaves nn.LSTM and its kind out of every graph.
    with torch._dynamo.config.patch(allow_rnn=True):
        got = _run(program, lambda function: _compiled(program, function))
    for field in dataclasses.fields(_Outcome):
        _assert_same(getattr(got, field.name), getattr(want, field.name), field.name, program.tolerance)
    counts = counters["turbine_lite"]
    assert counts["graphs"] >= 1
    in_eager = {key.removeprefix("eager ") for key in counts if key.startswith("eager ")}
    in_eager = {key for key in in_eager if not key.endswith(": small")}  # which follows from the others
    unexpected = in_eager - {f"{op}: {kind}" for op, kinds in program.eager.items() for kind in kinds.split(", ")}
    assert not unexpected, f"runs in eager: {sorted(unexpected)}"


def _compiled(program: Program, function: Callable[..., Any]) -> Callable[..., Any]:
    compiled: Callable[..., Any] = torch.compile(
        function, backend="turbine_lite_cpu", fullgraph=not program.breaks, dynamic=program.dynamic or None
    )
    return compiled


def _run(program: Program, prepare: Callable[[Callable[..., Any]], Callable[..., Any]]) -> _Outcome:
    torch.manual_seed(0)
    target = program.build()
    state = _state_of(target)
    function = prepare(target)
    outcomes = []
    for number, inputs in enumerate(program.calls):
        torch.manual_seed(number + 1)
        arguments = tree_map(_with_gradient, inputs()) if program.grad else inputs()
        torch.manual_seed(number + 100)
        with contextlib.nullcontext() if program.grad else torch.no_grad():
            results = function(*arguments)
        after_forward = torch.get_rng_state()
        gradients = _gradients(results, (arguments, state)) if program.grad else None
        outcomes.append(
            _Outcome(
                results=tree_map(_snapshot, results),
                arguments=tree_map(_snapshot, arguments),
                state=tree_map(_snapshot, state),
                gradients=gradients,
                aliases=_aliases(results, (arguments, state)),
                random_states=(after_forward, torch.get_rng_state()),
            )
        )
    return _Outcome(*([getattr(o, f.name) for o in outcomes] for f in dataclasses.fields(_Outcome)))


def _state_of(target: Any) -> dict[str, torch.Tensor]:
    if not isinstance(target, torch.nn.Module):
        return {}
    return {**dict(target.named_parameters()), **dict(target.named_buffers())}


def _with_gradient(leaf: Any) -> Any:
    return leaf.requires_grad_() if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf


def _snapshot(leaf: Any) -> Any:
    """A copy that later calls do not change, with the same strides (if no two elements share memory)."""
    if not isinstance(leaf, torch.Tensor) or leaf.is_quantized:
        return leaf
    copy = leaf.detach().clone(memory_format=torch.preserve_format)
    if copy.stride() != leaf.stride():
        copy = leaf.detach().as_strided(leaf.shape, leaf.stride())
    return copy.requires_grad_(leaf.requires_grad)


def _gradients(results: Any, owners: Any) -> Any:
    """The gradients of a sum that depends on each element of the results differently."""
    total = torch.zeros((), dtype=torch.float64)
    for result in _tensors(results):
        if result.requires_grad:
            real = torch.view_as_real(result) if result.is_complex() else result
            weights = torch.linspace(0.5, 1.5, real.numel()).reshape(real.shape)
            total = total + (real * weights.to(real.dtype)).sum().double()
    leaves = [tensor for tensor in _tensors(owners) if tensor.requires_grad and tensor.is_leaf]
    return torch.autograd.grad(total, leaves, allow_unused=True)


def _tensors(tree: Any) -> Iterator[torch.Tensor]:
    return (leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor))


def _aliases(results: Any, owners: Any) -> list[list[int]]:
    """For each result, the arguments, buffers and earlier results whose memory it shares."""
    owned = list(_tensors(owners))
    returned = list(_tensors(results))
    others = owned + returned
    return [
        [index for index, other in enumerate(others[: len(owned) + position]) if _share(result, other)]
        for position, result in enumerate(returned)
    ]


def _share(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a is b or (a.numel() > 0 and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr())


def _assert_same(got: Any, want: Any, what: str, tolerance: tuple[float, float] | None) -> None:
    got_leaves, got_spec = tree_flatten(got)
    want_leaves, want_spec = tree_flatten(want)
    assert got_spec == want_spec, f"{what}: structure {got_spec}, eager {want_spec}"
    for position, (a, b) in enumerate(zip(got_leaves, want_leaves, strict=True)):
        where = f"{what}[{position}]"
        assert type(a) is type(b), f"{where}: {type(a)}, eager {type(b)}"
        if isinstance(b, torch.Tensor):
            # What strides a gradient has depends on the derivative's formula, which autograd leaves open.
            _assert_same_tensor(a, b, where, tolerance, strides=what != "gradients")
        else:
            assert a == b or (a != a and b != b), f"{where}: {a!r}, eager {b!r}"


def _assert_same_tensor(
    a: torch.Tensor, b: torch.Tensor, where: str, tolerance: tuple[float, float] | None, *, strides: bool
) -> None:
    assert a.dtype == b.dtype, f"{where}: dtype {a.dtype}, eager {b.dtype}"
    assert a.shape == b.shape, f"{where}: shape {tuple(a.shape)}, eager {tuple(b.shape)}"
    if strides:
        assert a.stride() == b.stride(), f"{where}: strides {a.stride()}, eager {b.stride()}"
    assert a.requires_grad == b.requires_grad, f"{where}: requires_grad {a.requires_grad}, eager {b.requires_grad}"
    if b.is_quantized:
        assert a.qscheme() == b.qscheme()
        _assert_same_tensor(a.int_repr(), b.int_repr(), where, None, strides=strides)
        a, b = a.dequantize(), b.dequantize()
    exact = not (b.is_floating_point() or b.is_complex())
    rtol, atol = (0.0, 0.0) if exact else tolerance or TOLERANCE.get(b.dtype, (0.0, 0.0))
    torch.testing.assert_close(
        a.detach(), b.detach(), rtol=rtol, atol=atol, equal_nan=True, msg=lambda text: f"{where}: {text}"
    )
