"""Calls with next to no work in them: what is timed is everything around it."""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.cases.case import Case, Program

__all__ = ["OVERHEAD"]

# As many as BERT-base has.
_LAYERS = 99


def _add() -> Program:
    return Program(torch.add, (torch.randn(8), torch.randn(8)))


def _many_parameters() -> Program:
    return Program(nn.Sequential(*(nn.Linear(4, 4) for _ in range(_LAYERS))), (torch.randn(1, 4),))


OVERHEAD: tuple[Case, ...] = (
    Case("add_8_floats", "overhead", _add),
    Case("198_parameters", "overhead", _many_parameters),
)
