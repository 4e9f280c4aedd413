"""The commands of ``turbine-lite`` that take a model."""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.exc import BackendCompilerFailed
from torch._dynamo.utils import counters
from torch.utils._pytree import tree_leaves

import turbine_lite
from turbine_lite.compiler.stages import STAGES, file_of
from turbine_lite.diagnostics.profiled import Profile
from turbine_lite.errors import VerificationError
from turbine_lite.model_argument import Model, check_folder_of, load_tried_model

__all__ = ["bench", "compile_model", "explain", "inspect", "lower", "profile", "run", "verify"]

# As torch.testing has it, for float32; half precision is rounded elsewhere than in eager.
_RELATIVE = {torch.float16: 1e-2, torch.bfloat16: 2e-2}


def explain(args: argparse.Namespace) -> int:
    """``turbine-lite explain``."""
    model = _model(args)
    with torch.set_grad_enabled(model.trains):
        report = turbine_lite.explain(model.function, *model.args, **_how(args))
    print(report.to_json() if args.json else report)
    if args.write_repro is not None:
        for script in report.write_repro(args.write_repro):
            print(script)
    return 0


def profile(args: argparse.Namespace) -> int:
    """``turbine-lite profile``."""
    check_folder_of(args.trace)
    model = _model(args)
    with torch.set_grad_enabled(model.trains):
        found = _profiled(model, args)
    print(found.to_json() if args.json else found)
    if args.trace is not None:
        found.write_chrome_trace(args.trace)
    return 0


def inspect(args: argparse.Namespace) -> int:
    """``turbine-lite inspect``: write a page."""
    check_folder_of(args.output)
    model = _model(args)
    with torch.set_grad_enabled(model.trains):
        if args.no_compile:
            turbine_lite.explain(model.function, *model.args, **_how(args)).to_html(args.output, args.model)
        else:
            found = _profiled(model, args)
            found.to_html(args.output, args.model)
    print(args.output)
    return 0


def lower(args: argparse.Namespace) -> int:
    """``turbine-lite lower``: print a stage of each region."""
    name = "torch.mlir" if args.stage == "torch" else file_of(args.stage)
    with tempfile.TemporaryDirectory(prefix="turbine-lite-") as folder:
        _compile(args, dump_dir=folder, dump_stages=[args.stage] if args.stage in STAGES else ["iree-input"])
        files = sorted(Path(folder).rglob(name))
        for file in files:
            if len(files) > 1:
                print(f"// {file.parent.relative_to(folder).as_posix()}")
            print(file.read_text())
    return 0 if files else _nothing_in_iree()


def compile_model(args: argparse.Namespace) -> int:
    """``turbine-lite compile``: write every stage and the programs to a directory."""
    _compile(args, dump_dir=str(args.output), dump_stages=args.stages or ["all"])
    programs = sorted(args.output.rglob("module.vmfb"))
    for program in programs:
        print(f"{program}  {program.stat().st_size / 1024:.0f} KiB")
    print(args.output / "INDEX.md")
    return 0 if programs else _nothing_in_iree()


def _nothing_in_iree() -> int:
    print("turbine-lite: nothing of it runs in IREE; turbine-lite explain says why, --option extern=none may help")
    return 1


def run(args: argparse.Namespace) -> int:
    """``turbine-lite run``: compile, call, compare with eager."""
    model = _model(args)
    same = model.copy()
    compiled = _compiled(model, args)
    counters.clear()
    started = time.perf_counter()
    got = _tensors(model, compiled)
    seconds = time.perf_counter() - started
    want = _tensors(same, same.function)
    counts = counters["turbine_lite"]
    rows = [
        {"shape": list(g.shape), "dtype": str(g.dtype), "difference": _difference(g, w), "equal": _is_equal(g, w)}
        for g, w in zip(got, want, strict=True)
    ]
    found = {
        "first_call_seconds": seconds,
        "operators_in_iree": counts["nodes native"],
        "operators_in_eager": counts["nodes eager"],
        "results": rows,
    }
    if args.json:
        print(json.dumps(found, indent=1))
    else:
        print(f"first call, with compilation: {seconds:.1f} s; {counts['nodes native']} operators in IREE, ", end="")
        print(f"{counts['nodes eager']} in kernels and eager")
        for number, row in enumerate(rows):
            verdict = "equal to eager's" if row["equal"] else "NOT eager's"
            print(f"result {number}: {row['dtype']} {row['shape']}, {verdict}; {row['difference']:.1e} of the largest")
    return 0 if all(row["equal"] for row in rows) else 1


def verify(args: argparse.Namespace) -> int:
    """``turbine-lite verify``: compare each graph with eager, and find the operator at fault."""
    try:
        _compile(args, verify="error")
    except (BackendCompilerFailed, VerificationError) as failure:  # from the compilation, or from a call
        error = getattr(failure, "inner_exception", failure)
        if not isinstance(error, VerificationError):
            raise
        print(error)
        return 1
    print("equal to eager")
    return 0


def bench(args: argparse.Namespace) -> int:
    """``turbine-lite bench``: calls of eager and of the compiled model in turns."""
    model = _model(args)
    ways: dict[str, Callable[..., Any]] = {"eager": model.function, "turbine_lite": _compiled(model, args)}
    for name in args.against:
        torch._dynamo.reset()
        ways[name] = torch.compile(model.function, backend=name)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(3):  # compiles, packs, tries
        for function in ways.values():
            _settle(model, function)
    for _ in range(args.runs):
        for name, function in ways.items():
            model.step(function)  # the one before has emptied the caches
            seconds[name].append(_seconds(model, function))
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    if args.json:
        print(json.dumps({"seconds": medians, "threads": torch.get_num_threads(), "runs": args.runs}, indent=1))
        return 0
    print(f"medians of {args.runs} calls in turns, {torch.get_num_threads()} threads; time over turbine_lite's")
    for name, median in medians.items():
        print(f"  {name:14} {median * 1e3:10.3f} ms  {median / medians['turbine_lite']:.2f}")
    return 0


def _settle(model: Model, function: Callable[..., Any]) -> None:
    started = time.perf_counter()
    for _ in range(8):
        model.step(function)
        if time.perf_counter() - started > 2.0:
            break


def _seconds(model: Model, function: Callable[..., Any]) -> float:
    started = time.perf_counter()
    model.step(function)
    return time.perf_counter() - started


def _tensors(model: Model, function: Callable[..., Any]) -> list[torch.Tensor]:
    """The results, under a fixed seed."""
    torch.manual_seed(0)
    return [leaf for leaf in tree_leaves(model.step(function)) if isinstance(leaf, torch.Tensor)]


def _profiled(model: Model, args: argparse.Namespace) -> Profile:
    return turbine_lite.profile(model.function, *model.args, runs=args.runs, backward=model.trains, **_how(args))


def _model(args: argparse.Namespace) -> Model:
    return load_tried_model(args.model, args.input, trains=args.train)


def _how(args: argparse.Namespace) -> dict[str, Any]:
    return {"mode": args.mode, "options": dict(_options(args)), "dynamic": args.dynamic}


def _options(args: argparse.Namespace) -> Iterator[tuple[str, Any]]:
    for text in args.option:
        name, _, value = text.partition("=")
        yield name, turbine_lite.Options.parse(name, value, "--option")


def _compiled(model: Model, args: argparse.Namespace, **options: Any) -> Callable[..., Any]:
    how = _how(args)
    how["options"] |= options
    if how["mode"] is not None:  # of mode and options, torch.compile takes one; the environment is not to be asked
        how["options"] = turbine_lite.Options.of_mode(how.pop("mode")) | how["options"]
    else:
        del how["mode"]
    compiled: Callable[..., Any] = torch.compile(model.function, backend="turbine_lite_cpu", **how)
    return compiled


def _compile(args: argparse.Namespace, **options: Any) -> None:
    model = _model(args)
    model.step(_compiled(model, args, **options))


def _difference(got: torch.Tensor, want: torch.Tensor) -> float:
    """The largest difference, of the largest number."""
    if not got.numel() or got.shape != want.shape:
        return 0.0
    wide = torch.complex128 if want.is_complex() else torch.float64
    largest = float(want.to(wide).abs().max())
    return float((got.to(wide) - want.to(wide)).abs().max()) / (largest or 1.0)


def _is_equal(got: torch.Tensor, want: torch.Tensor) -> bool:
    if (got.shape, got.dtype) != (want.shape, want.dtype):
        return False
    if not (want.is_floating_point() or want.is_complex()):
        return torch.equal(got, want)
    close = torch.isnan(got) == torch.isnan(want)
    return bool(close.all()) and not _difference(got.nan_to_num(), want.nan_to_num()) > _RELATIVE.get(want.dtype, 1e-4)
