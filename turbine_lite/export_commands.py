"""The commands of ``turbine-lite`` that write programs for others: ``export``, ``package`` and ``op``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

from turbine_lite.compiler.dialects import DIALECTS
from turbine_lite.model_argument import (
    INPUT_HELP,
    MODEL_HELP,
    ModelError,
    check_folder_of,
    load_inputs,
    load_tried_model,
)
from turbine_lite.packaging.targets import TARGETS

__all__ = ["add_export_commands"]


def add_export_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add them to the parser's commands."""

    def add(name: str, run: Callable[[argparse.Namespace], int], text: str, first: str, what: str) -> Any:
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument(first, metavar=first.upper(), help=what)
        command.add_argument("--input", action="append", default=[], metavar="SIZESxTYPE", help=INPUT_HELP)
        command.set_defaults(run=run)
        return command

    export = add("export", _export, "write a model as MLIR for other compilers and tools", "model", MODEL_HELP)
    export.add_argument("--dialect", choices=DIALECTS, default="stablehlo", help="which (stablehlo)")
    export.add_argument("--weights", choices=("embedded", "external"), default="embedded", help="where (embedded)")
    export.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="text if it ends with .mlir")
    package = add("package", _package, "compile a model into a file that turbine_lite.load runs", "model", MODEL_HELP)
    package.add_argument("-o", "--output", type=Path, required=True, metavar="FILE")
    package.add_argument(
        "--target", action="append", choices=["host", *TARGETS], help="a kind of CPU; may be repeated (host)"
    )
    op = add(
        "op", _op, "print an operator of PyTorch's as MLIR", "operator", "such as aten.addmm or aten.sum.dim_IntList"
    )
    op.add_argument(
        "--arg", action="append", default=[], metavar="JSON", help="a further argument: 2, [0, 1], true, null"
    )
    op.add_argument(
        "--dialect",
        choices=[name for name in DIALECTS if name != "vmfb"],
        default="linalg-on-tensors",
        help="which (linalg-on-tensors)",
    )


def _export(args: argparse.Namespace) -> int:
    import turbine_lite

    check_folder_of(args.output)
    model = load_tried_model(args.model, args.input)
    exported = turbine_lite.export(model.function, *model.args, dialect=args.dialect, weights=args.weights)
    for path in exported.save(args.output):
        print(f"{path}  {path.stat().st_size / 1024:.0f} KiB")
    return 0


def _package(args: argparse.Namespace) -> int:
    import turbine_lite

    model = load_tried_model(args.model, args.input)
    path = turbine_lite.save(model.function, args.output, *model.args, targets=args.target or ("host",))
    print(f"{path}  {path.stat().st_size / 1024:.0f} KiB")
    return 0


def _op(args: argparse.Namespace) -> int:
    import turbine_lite

    target = _operator(args.operator)
    further = [_value(text) for text in args.arg]
    print(turbine_lite.import_node(target, *load_inputs(args.input), *further, dialect=args.dialect))
    return 0


def _operator(name: str) -> Any:
    import torch

    namespace, _, rest = name.partition(".")
    parts = rest.split(".")
    try:
        found = reduce(getattr, parts, getattr(torch.ops, namespace))
    except AttributeError:
        raise ModelError(
            f"torch has no operator {name!r}; they are called aten.addmm or aten.sum.dim_IntList"
        ) from None
    if not isinstance(found, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        raise ModelError(f"{name!r} is no operator; they are called aten.addmm or aten.sum.dim_IntList")
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise ModelError(f"cannot read the argument {text!r}; write it as JSON: 2, 0.5, [0, 1], true, null") from None
