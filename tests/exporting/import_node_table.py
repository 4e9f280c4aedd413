"""``python -m tests.exporting.import_node_table``: operators of op_db as MLIR, alone, into ``import_node.json``."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode

import turbine_lite
from turbine_lite.errors import CompilationError, CompilerCrashError, TurbineLiteError

TABLE = Path(__file__).with_name("import_node.json")
DIALECTS = ("torch", "linalg-on-tensors", "tosa", "stablehlo")

# Of other kinds of tensors, or of LAPACK, which torch-mlir has no operators for.
_NOT = (
    "sparse",
    "masked.",
    "jiterator",
    "linalg.",
    "_refs",
    "cdist",
    "fft.",
    "ldexp",
    "to_sparse",
    "empty",
    "stft",
    "istft",
)


def operators() -> list[str]:
    """The first 220 names that have a sample in float32 whose first call is of an ATen operator."""
    names = dict.fromkeys(op.name for op in op_db if torch.float32 in op.dtypes and not op.name.startswith(_NOT))
    return [name for name in names if name not in ("item", "equal", "allclose", "resolve_conj", "resolve_neg")][:220]


class _Calls(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls.append((function, args, kwargs or {}))
        return function(*args, **(kwargs or {}))


def _calls(name: str) -> list[tuple[Any, Any, Any]]:
    op = next(op for op in op_db if op.name == name)
    torch.manual_seed(0)
    sample = next(iter(op.sample_inputs("cpu", torch.float32)))
    with _Calls() as found, torch.no_grad():
        op(sample.input, *sample.args, **sample.kwargs)
    return found.calls


def run_row(name: str) -> dict[str, str]:
    """From dialect to ``"ok"``, or why not: of the operator that does the work, the last that is called."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        calls = _calls(name)
        return {dialect: _status(calls[-1], dialect) if calls else "no call" for dialect in DIALECTS}


def _status(call: tuple[Any, Any, Any], dialect: str) -> str:
    target, args, kwargs = call
    try:
        text = str(turbine_lite.import_node(target, *args, dialect=dialect, kwargs=kwargs))
    except CompilerCrashError:
        return "CRASH"
    except CompilationError as error:
        return f"no: {error.headline.splitlines()[0][:90]}"
    except TurbineLiteError as error:
        return f"no: {str(error)[:90]}"
    return "ok" if "func.func @main" in text else "CRASH: no function"


def main() -> int:
    table = {}
    for name in operators():
        table[name] = run_row(name)
        print(name, table[name], flush=True)
    TABLE.write_text(json.dumps(table, indent=0, sort_keys=True) + "\n")
    for dialect in DIALECTS:
        print(f"{dialect}: {sum(row[dialect] == 'ok' for row in table.values())} of {len(table)}")
    return int(any("CRASH" in status for row in table.values() for status in row.values()))


if __name__ == "__main__":
    sys.exit(main())
