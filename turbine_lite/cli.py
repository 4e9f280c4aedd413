"""The ``turbine-lite`` command. What it runs is imported when it is asked for."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import tarfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import turbine_lite
from turbine_lite.cache_commands import add_cache_commands
from turbine_lite.compiler.stages import ALL, STAGES
from turbine_lite.errors import TurbineLiteError
from turbine_lite.export_commands import add_export_commands
from turbine_lite.model_argument import INPUT_HELP, MODEL_HELP

__all__ = ["main"]

_EXAMPLES = """\
examples:
  turbine-lite info --self-test
  turbine-lite run model.py:Net --input 1x3x224x224xf32
  turbine-lite explain model.py:Net --input 1x3x224x224xf32 --train
  turbine-lite profile model.py:Net --input 1x3x224x224xf32 --trace trace.json
  turbine-lite lower model.py:Net --input 1x3x224x224xf32 --stage iree-input --option extern=none
  turbine-lite export model.py:Net --input 1x3x224x224xf32 --dialect stablehlo -o net.mlir
  turbine-lite op aten.addmm --input 128xf32 --input 64x32xf32 --input 32x128xf32 --dialect stablehlo
  turbine-lite bench package.models:make --mode max-autotune --against inductor
"""

# What is the user's to mend: one line says it, and --debug where it came from.
_EXPECTED_ERRORS = (OSError, tarfile.TarError, ValueError, TurbineLiteError)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status: 2 for wrong input, 1 where the answer is no."""
    args = _parser().parse_args(argv)
    try:
        status: int = args.run(args)
        sys.stdout.flush()
    except BrokenPipeError:  # as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # also from the user's model: one line says it
        if args.debug:
            traceback.print_exc()
        elif isinstance(error, _EXPECTED_ERRORS):
            print(f"turbine-lite: {_first_line(error)}", file=sys.stderr)
        else:
            print(f"turbine-lite: {type(error).__name__}: {_first_line(error)} (--debug shows more)", file=sys.stderr)
        return 2
    return status


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="turbine-lite",
        description="PyTorch on CPUs through MLIR.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"turbine-lite {turbine_lite.__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_info(commands)
    demo = commands.add_parser("demo", help="ResNet-18 through every stage, checked against eager and timed")
    demo.set_defaults(run=lambda _: _later("demo", "main")())
    _add_model_commands(commands)
    add_export_commands(commands)
    add_cache_commands(commands.add_parser("cache", help="compiled programs on disk"))
    return parser


def _add_info(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "versions, this machine's CPU, IREE's drivers, the cache"
    info = commands.add_parser("info", help=text, description=text)
    info.add_argument("--self-test", action="store_true", help="compile a small function, too; exit status 1 if wrong")
    info.add_argument("--json", action="store_true", help="for machines")
    info.set_defaults(run=lambda args: _later("info", "main")(args))


def _add_model_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    def add(name: str, function: str, text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("model", metavar="MODEL", help=MODEL_HELP)
        command.add_argument("--input", action="append", default=[], metavar="SIZESxTYPE", help=INPUT_HELP)
        command.add_argument("--train", action="store_true", help="as in training, with the backward graph")
        command.add_argument("--dynamic", action="store_true", default=None, help="compile for all sizes")
        command.add_argument("--mode", help="as of torch.compile")
        command.add_argument(
            "--option", action="append", default=[], metavar="NAME=VALUE", help="an option of the backend"
        )
        command.set_defaults(run=lambda args: _later("model_commands", function)(args))
        return command

    def add_json(command: argparse.ArgumentParser) -> None:
        command.add_argument("--json", action="store_true", help="for machines")

    def add_runs(command: argparse.ArgumentParser) -> None:
        command.add_argument("--runs", type=_above_0, default=20, help="how many calls are timed (20)")

    add_json(add("run", "run", "compile, call, and compare with eager; exit status 1 if the results differ"))
    explain = add("explain", "explain", "what would run in IREE, what not and why; nothing is compiled")
    explain.add_argument("--write-repro", type=Path, metavar="DIR", help="write a script for each graph")
    add_json(explain)
    profile = add("profile", "profile", "where the time of a call goes, down to the dispatches of IREE")
    profile.add_argument("--trace", type=Path, metavar="FILE", help="write a trace for Perfetto")
    add_runs(profile)
    add_json(profile)
    inspect = add("inspect", "inspect", "write a page: your lines, FX, MLIR and dispatches side by side")
    inspect.add_argument("-o", "--output", type=Path, required=True, metavar="FILE.html")
    inspect.add_argument("--no-compile", action="store_true", help="without IREE's input and dispatches")
    add_runs(inspect)
    lower = add("lower", "lower", "print the MLIR of what runs in IREE")
    lower.add_argument("--stage", choices=["torch", *STAGES], default="iree-input", help="which (iree-input)")
    output = add("compile", "compile_model", "write the stages, and programs for IREE's runtime, to a directory")
    output.add_argument("-o", "--output", type=Path, required=True, metavar="DIR")
    output.add_argument("--stages", nargs="+", choices=[ALL, *STAGES], help="which (all)")
    add(
        "verify",
        "verify",
        "compare each graph with eager, and find the operator at fault; exit status 1 if one differs",
    )
    bench = add("bench", "bench", "time calls in turns with eager's")
    bench.add_argument("--against", nargs="+", default=[], metavar="BACKEND", help="other backends of torch.compile")
    add_runs(bench)
    add_json(bench)


def _above_0(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError("must be above 0")
    return count


def _later(module: str, function: str) -> Callable[..., int]:
    found: Callable[..., int] = getattr(importlib.import_module(f"turbine_lite.{module}"), function)
    return found
