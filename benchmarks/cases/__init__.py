"""What is timed: calls without work, operators alone, whole models, and steps of training.

Everything is built from a seed with random weights, and nothing here knows who is going to run it.
"""

from __future__ import annotations

from benchmarks.cases.case import Case
from benchmarks.cases.micro import MICRO
from benchmarks.cases.models import MODELS
from benchmarks.cases.overhead import OVERHEAD
from benchmarks.cases.training import TRAINING

__all__ = ["CASES", "Case"]

CASES: dict[str, Case] = {case.name: case for case in (*OVERHEAD, *MICRO, *MODELS, *TRAINING)}
