"""PyTorch's operator database against the backend.

``python -m tests.conformance.opinfo`` runs every operator, each in a process of its own, and writes the table
``opinfo.json`` that ``test_opinfo.py`` checks: from dtype and operator to ``"native"`` or to the reasons for which
parts of it run in eager. A result that differs from eager's is never written to the table: the run lists it and ends
with exit status 1.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import multiprocessing
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.utils import counters
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map

TABLE = Path(__file__).with_name("opinfo.json")
DTYPES = {"float32": torch.float32, "int64": torch.int64, "bool": torch.bool, "float64": torch.float64}
SAMPLES = 2

# (relative, absolute). Reductions are summed in another order than in eager.
TOLERANCE = {torch.float32: (1e-4, 1e-5), torch.float64: (1e-7, 1e-8)}


def name_of(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


OPS = {name_of(op): op for op in op_db}

# No two calls of these agree, whoever runs them: what they return is uninitialised or an address.
NOT_COMPARABLE = frozenset({"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"})


def same(got: Any, want: Any) -> None:
    """Raise AssertionError where two results differ in structure, dtype, shape, stride or value."""
    got_leaves, got_spec = tree_flatten(got)
    want_leaves, want_spec = tree_flatten(want)
    assert got_spec == want_spec, f"structure {got_spec}, eager {want_spec}"
    for a, b in zip(got_leaves, want_leaves, strict=True):
        if not isinstance(b, torch.Tensor):
            assert a == b or (a != a and b != b), f"{a!r}, eager {b!r}"
            continue
        assert a.dtype == b.dtype, f"dtype {a.dtype}, eager {b.dtype}"
        assert a.layout == b.layout, f"layout {a.layout}, eager {b.layout}"
        assert a.shape == b.shape, f"shape {tuple(a.shape)}, eager {tuple(b.shape)}"
        rtol, atol = TOLERANCE.get(b.dtype, (0.0, 0.0))
        torch.testing.assert_close(a, b, rtol=rtol, atol=atol, equal_nan=True)


def clone(value: Any) -> Any:
    """A copy of a sample's arguments with the same strides, and the same sharing of memory within each tensor."""

    def one(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or leaf.layout is not torch.strided:
            return leaf
        return leaf.clone(memory_format=torch.preserve_format)

    return tree_map(one, value)


def run_op(name: str, dtype: torch.dtype) -> str:
    """``"native"``, or the reasons for eager parts, over a few samples.

    Raises:
        AssertionError: a result or an argument differs from eager's.
    """
    op = OPS[name]
    reasons: set[str] = set()
    graphs = 0
    samples = list(op.sample_inputs("cpu", dtype, requires_grad=False))
    picked = samples if len(samples) <= SAMPLES else [samples[0], samples[len(samples) // 2]]
    for sample in picked:
        torch._dynamo.reset()
        counters.clear()
        arguments = (sample.input, *sample.args)
        eager_arguments, compiled_arguments = clone(arguments), clone(arguments)
        try:
            torch.manual_seed(0)
            want = op.op(*eager_arguments, **sample.kwargs)
        except Exception:  # a sample that eager refuses says nothing about us
            continue
        compiled = torch.compile(lambda *a, **k: op.op(*a, **k), backend="turbine_lite_cpu")
        torch.manual_seed(0)
        got = compiled(*compiled_arguments, **sample.kwargs)
        if name not in NOT_COMPARABLE:
            same(got, want)
            same(compiled_arguments, eager_arguments)
        graphs += counters["turbine_lite"]["graphs"]
        reasons |= {key for key in counters["turbine_lite"] if key.startswith("eager ")}
    if not graphs:
        return "no graph"
    return "; ".join(sorted(reasons)) or "native"


def names_for(dtype: torch.dtype) -> list[str]:
    return sorted({name for name, op in OPS.items() if dtype in op.dtypes})


def _attempt(job: tuple[str, str]) -> tuple[str, str, str]:
    dtype_name, name = job
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    try:
        return dtype_name, name, run_op(name, DTYPES[dtype_name])
    except Exception as error:  # reported, and fails the run
        return dtype_name, name, f"WRONG {type(error).__name__}: {' '.join(str(error).split())[:300]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=DTYPES, action="append", help="default: all")
    parser.add_argument("-k", default="", help="only operators whose name contains this; nothing is written")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    import turbine_lite.compile_graph  # noqa: F401  # imported once, before the forks

    jobs = [(d, n) for d in args.dtype or DTYPES for n in names_for(DTYPES[d]) if args.k in n]
    context = multiprocessing.get_context("fork")
    table: dict[str, dict[str, str]] = {}
    wrong = []
    for start in range(0, len(jobs), 32):
        # A crash breaks a pool: small pools, and what was lost is run again one by one.
        for dtype_name, name, status in _run(context, jobs[start : start + 32], args.jobs):
            print(dtype_name, name, status, flush=True)
            if status.startswith("WRONG"):
                wrong.append((dtype_name, name, status))
            table.setdefault(dtype_name, {})[name] = status
    for row in wrong:
        print(*row)
    if not args.k:
        table = {d: {n: s for n, s in rows.items() if not s.startswith("WRONG")} for d, rows in table.items()}
        merged = (json.loads(TABLE.read_text()) if TABLE.exists() else {}) | table
        TABLE.write_text(json.dumps(merged, indent=1, sort_keys=True) + "\n")
    return 1 if wrong else 0


def _run(context: Any, jobs: list[tuple[str, str]], workers: int) -> list[tuple[str, str, str]]:
    done: list[tuple[str, str, str]] = []
    try:
        with concurrent.futures.ProcessPoolExecutor(workers, context) as pool:
            done.extend(pool.map(_attempt, jobs))
        return done
    except concurrent.futures.process.BrokenProcessPool:
        if len(jobs) == 1:
            return [(*jobs[0], "WRONG crash of the process")]
        return [row for job in jobs for row in _run(context, [job], 1)]


if __name__ == "__main__":
    sys.exit(main())
