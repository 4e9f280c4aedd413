"""For tests of operators that are left to kernels."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.utils import counters

from turbine_lite import compile_graph

__all__ = ["captured", "count_kernels", "run_compiled"]


def run_compiled(module, **options):
    """The module through the backend; what is no kernel must compile."""
    return torch.compile(module, backend="turbine_lite_cpu", options={"fallback": "error", **options})


def count_kernels() -> int:
    """Reasons for kernels, since the counters were cleared."""
    return sum(count for name, count in counters["turbine_lite"].items() if name.endswith(": slower"))


def captured(program, *arguments):
    """The inference graph that AOTAutograd makes."""
    graphs = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compile_graph, "use_kernels", lambda gm, *a, **k: (graphs.append(gm), gm)[1])
        with torch.no_grad():
            run_compiled(program)(*arguments)
    return graphs[0]
