"""The ``turbine-lite`` command."""

from __future__ import annotations

import argparse
import os
import sys
import tarfile
from collections.abc import Sequence

import turbine_lite
from turbine_lite.cache_commands import add_cache_commands
from turbine_lite.errors import TurbineLiteError

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="turbine-lite", description="PyTorch on CPUs through MLIR.")
    parser.add_argument("--version", action="version", version=f"turbine-lite {turbine_lite.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add_cache_commands(commands.add_parser("cache", help="compiled programs on disk"))
    args = parser.parse_args(argv)
    try:
        status: int = args.run(args)
        sys.stdout.flush()
    except BrokenPipeError:  # as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (OSError, tarfile.TarError, ValueError, TurbineLiteError) as error:
        print(f"turbine-lite: {error}", file=sys.stderr)
        return 1
    return status
