"""OpenMP's threads, which spin for milliseconds after each operator of PyTorch's: on the CPUs that IREE's need."""

from __future__ import annotations

import torch

__all__ = ["start_openmp"]

# A sum of so many elements is computed by all of OpenMP's threads.
_ENOUGH_FOR_OPENMP = 1 << 17


def start_openmp() -> None:
    """Leave OpenMP's threads as an operator of PyTorch's leaves them, so that what is timed next meets them."""
    torch.ones(_ENOUGH_FOR_OPENMP).add_(1)
