"""One thing to time."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

__all__ = ["Case", "Program"]


class Program(NamedTuple):
    """A module or function in float32, and what it is called with: by position or by name."""

    call: Callable[..., Any]
    arguments: tuple[Any, ...] | dict[str, Any]

    def bind(self, call: Callable[..., Any]) -> Callable[[], Any]:
        """``call``, which stands for the program, with the program's arguments."""
        if isinstance(self.arguments, dict):
            return functools.partial(call, **self.arguments)
        return functools.partial(call, *self.arguments)


@dataclasses.dataclass(frozen=True)
class Case:
    """A program under a name.

    Attributes:
        name: unique among all cases.
        group: ``"overhead"``, ``"micro"``, ``"model"`` or ``"training"``. In the last the program is a module whose
            output is a loss or has one, and what is timed is a step: forward, backward, and an update of the
            parameters.
        make: builds the program; called under a fixed seed.
    """

    name: str
    group: str
    make: Callable[[], Program]

    def build(self) -> Program:
        torch.manual_seed(0)
        program = self.make()
        if isinstance(program.call, torch.nn.Module):
            program.call.train(self.group == "training")
        return program
