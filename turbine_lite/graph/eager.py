"""Running a captured graph in eager PyTorch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import GraphModule

__all__ = ["as_captured", "run_in_eager"]


@contextlib.contextmanager
def as_captured() -> Iterator[None]:
    """The state in which a captured graph runs: it has autograd's and autocast's work in it, so both are off."""
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        yield


def run_in_eager(gm: GraphModule, *args: Any) -> Any:
    """What ``gm`` returns for ``args``."""
    with as_captured():
        return gm.forward(*args)
