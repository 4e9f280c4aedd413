"""Compiling a function for a look at it, apart from what is compiled of it otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["compile_alone"]


def compile_alone(
    function: Callable[..., Any], backend: Callable[..., Any], dynamic: bool | None
) -> Callable[..., Any]:
    """``torch.compile``, whose entries for the function, by guards, are neither used nor added to."""
    compile_it: Any = torch.compile  # whose overloads lack the last argument
    compiled: Callable[..., Any] = compile_it(function, backend=backend, dynamic=dynamic, isolate_recompiles=True)
    return compiled
