"""Running a captured graph in eager PyTorch."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule

__all__ = ["run_in_eager"]


def run_in_eager(gm: GraphModule, *args: Any) -> Any:
    """What ``gm`` returns for ``args``. The graph has autograd's and autocast's work in it, so both are off."""
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        return gm.forward(*args)
