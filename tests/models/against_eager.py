"""One architecture through the backend and in eager: are they equal, and what ran where."""

from __future__ import annotations

import argparse
import copy
import json
import logging
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._dynamo.utils import counters

from tests.helpers import assert_same_gradients, relative_error
from tests.models.architectures import ARCHITECTURES, build
from tests.models.zoo import main_result

TABLE = Path(__file__).with_name("architectures.json")
MODES = ("forward", "training")
_LEARNING_RATE = 0.1

# What ran where: {"graphs": 1, "regions": 1, "native share": 1.0, "eager": {"aten.bernoulli.p": "random"}}
Row = dict[str, Any]


def run(name: str, mode: str) -> Row:
    """Run one architecture both ways.

    Raises:
        AssertionError: a result, loss, gradient, parameter or buffer differs from eager's.
    """
    torch._dynamo.reset()
    counters.clear()
    (_forward if mode == "forward" else _training_step)(*build(name))
    return _what_ran_where()


def _what_ran_where() -> Row:
    counts = counters["turbine_lite"]
    native, eager = counts.get("nodes native", 0), counts.get("nodes eager", 0)
    reasons = [key.removeprefix("eager ").rpartition(": ") for key in counts if key.startswith("eager ")]
    return {
        "graphs": counts["graphs"],
        "regions": counts["executables"],
        "native share": round(native / (native + eager), 3) if native + eager else None,
        "eager": {op: kind for op, _, kind in sorted(reasons)},
    }


def _loss(result: Any) -> torch.Tensor:
    loss = getattr(result, "loss", None)
    return loss if isinstance(loss, torch.Tensor) else main_result(result).square().mean()


def _forward(model: nn.Module, arguments: dict[str, Any]) -> None:
    model.eval()
    compiled = torch.compile(model, backend="turbine_lite_cpu")
    with torch.no_grad():
        want, got = main_result(model(**arguments)), main_result(compiled(**arguments))
    assert got.shape == want.shape
    assert relative_error(got, want) < 1e-4, f"result: {relative_error(got, want)}"


def _training_step(model: nn.Module, arguments: dict[str, Any]) -> None:
    model.train()
    twin = copy.deepcopy(model)
    compiled = torch.compile(twin, backend="turbine_lite_cpu")
    want, got = _step(model, model, arguments), _step(twin, compiled, arguments)
    assert relative_error(got, want) < 1e-4, f"loss {float(got)}, eager {float(want)}"
    for name, allowed in assert_same_gradients(twin, model).items():
        parameter = model.get_parameter(name)
        step = float((twin.get_parameter(name) - parameter).abs().max())
        assert step <= _LEARNING_RATE * allowed + 1e-6 * float(parameter.abs().max()), f"{name} after the step"
    for (name, buffer), other in zip(model.named_buffers(), twin.buffers(), strict=True):
        # Absolute as well: the mean of what a norm and a convolution without bias give is zero but for rounding.
        torch.testing.assert_close(other, buffer, rtol=1e-3, atol=1e-4, msg=lambda text, name=name: f"{name}: {text}")


def _step(model: nn.Module, call: Any, arguments: dict[str, Any]) -> torch.Tensor:
    torch.manual_seed(7)  # of dropout
    loss = _loss(call(**arguments))
    loss.backward()
    torch.optim.SGD(model.parameters(), _LEARNING_RATE).step()
    return loss.detach()


def write_table() -> int:
    """Run all and write the table; exit status 1 if a result differs from eager's."""
    parser = argparse.ArgumentParser(prog="python -m tests.models.architectures")
    parser.add_argument("-k", action="append", help="only these architectures; other rows of the table stay")
    names = parser.parse_args().k or list(ARCHITECTURES)
    warnings.simplefilter("ignore")
    logging.getLogger("turbine_lite").setLevel(logging.ERROR)
    table = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    table = {name: row for name, row in table.items() if name in ARCHITECTURES}
    wrong = 0
    for name in names:
        for mode in MODES:
            begin = time.perf_counter()
            try:
                row = run(name, mode)
            except Exception as error:  # reported, and fails the run
                wrong += 1
                table.get(name, {}).pop(mode, None)
                print(name, mode, f"WRONG {type(error).__name__}: {' '.join(str(error).split())[:1000]}", flush=True)
                continue
            print(name, mode, f"{time.perf_counter() - begin:.1f} s", row, flush=True)
            table.setdefault(name, {})[mode] = row
        TABLE.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n")
    return 1 if wrong else 0
