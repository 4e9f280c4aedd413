"""What many tests need: compile, compare."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

NATIVE = {"fallback": "error", "extern": "none"}

# (relative, absolute). float32 sums are taken in another order than in eager; chains in half precision are rounded
# once where eager rounds at each step.
TOLERANCE = {
    torch.float16: (5e-3, 5e-3),
    torch.bfloat16: (4e-2, 4e-2),
    torch.float32: (1e-4, 1e-5),
    torch.float64: (1e-7, 1e-8),
    torch.complex64: (1e-4, 1e-5),
    torch.complex128: (1e-7, 1e-8),
}


def compiled(function: Callable[..., Any], **options: Any) -> Any:
    """The function through the backend, with ``fallback="error"`` unless told otherwise."""
    return torch.compile(function, backend="turbine_lite_cpu", fullgraph=True, options={**NATIVE, **options})


def assert_same(got: Any, want: Any, *, rtol: float = 1e-4, atol: float = 1e-5, strides: bool = True) -> None:
    """Structure, dtypes, shapes, strides and values of two results."""
    got_leaves, got_spec = tree_flatten(got)
    want_leaves, want_spec = tree_flatten(want)
    assert got_spec == want_spec
    for a, b in zip(got_leaves, want_leaves, strict=True):
        if not isinstance(b, torch.Tensor):
            assert a == b
            continue
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        if strides:
            assert a.stride() == b.stride()
        if b.is_floating_point():
            torch.testing.assert_close(a, b, rtol=rtol, atol=atol, equal_nan=True)
        else:
            assert torch.equal(a, b)


def relative_error(got: torch.Tensor, want: torch.Tensor) -> float:
    """Largest difference over the largest value."""
    return float((got - want).abs().max() / want.abs().max().clamp_min(1e-12))


def assert_same_gradients(got: torch.nn.Module, want: torch.nn.Module) -> dict[str, float]:
    """Compare the gradients of two copies of a model; returns the difference allowed for each parameter that has one.

    Relative to the tensor; gradients that are zero in exact arithmetic (biases before a norm) to the largest of all.
    """
    largest = max(float(p.grad.abs().max()) for p in want.parameters() if p.grad is not None)
    allowed = {}
    for (name, parameter), other in zip(want.named_parameters(), got.parameters(), strict=True):
        if parameter.grad is None:
            assert other.grad is None, name
            continue
        allowed[name] = 1e-3 * float(parameter.grad.abs().max()) + 1e-6 * largest
        assert other.grad is not None, name
        difference = float((other.grad - parameter.grad).abs().max())
        assert difference <= allowed[name], f"gradient of {name}: off by {difference}, {allowed[name]} allowed"
    return allowed


def run_jax(command: str, path: Path) -> None:
    """Run a command of tests/exporting/jax_programs.py; JAX belongs to what the tests need."""
    program = Path(__file__).parent / "exporting" / "jax_programs.py"
    child = subprocess.run([sys.executable, program, command, path], capture_output=True, text=True, timeout=300)
    assert child.returncode == 0, child.stderr
