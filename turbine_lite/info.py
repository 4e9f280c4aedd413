"""``turbine-lite info``: what is installed, and whether it works."""

from __future__ import annotations

import argparse
import json
import platform
import re
import time
from typing import Any

import torch
from iree import runtime

from turbine_lite.compiler.cache import CacheDirectory
from turbine_lite.compiler.client import most_at_once
from turbine_lite.environment import cpu_description, installed_versions
from turbine_lite.options import Options

__all__ = ["main"]

# Of the features that matter for speed.
_FEATURES = ("avx2", "fma", "avx512f", "avx512_bf16", "avx512_fp16", "avx512_vnni", "amx_tile", "asimd", "sve")


def main(args: argparse.Namespace) -> int:
    """Print it; exit status 1 if the self-test fails."""
    options = Options.resolve()
    found: dict[str, Any] = {
        "versions": {"python": platform.python_version(), **installed_versions()},
        "cpu": _cpu(),
        "threads": torch.get_num_threads(),
        "compilers at once": most_at_once(),
        "drivers": sorted(name for name in runtime.query_available_drivers() if name.startswith("local")),
        "cache": {"directory": str(CacheDirectory(limit=options.cache_bytes).root), "on": options.cache},
    }
    if args.self_test:
        found["self-test"] = _self_test()
    if args.json:
        print(json.dumps(found, indent=1))
    else:
        for name, value in found.items():
            print(f"{name:18} {_text(value)}")
    return 0 if found.get("self-test", {}).get("passed", True) else 1


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_text(item)}" for key, item in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _cpu() -> dict[str, Any]:
    text = cpu_description()
    model = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    words = set(text.split())
    return {
        "model": model.group(1) if model else platform.machine(),
        "features": [name for name in _FEATURES if name in words],
    }


def _self_test() -> dict[str, Any]:
    """A matmul and a softmax through the compiler, not from the cache."""

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.softmax(torch.tanh(x @ y) + 1, -1)

    x, y = torch.randn(33, 65), torch.randn(65, 17)
    options: dict[str, Any] = {"fallback": "error", "extern": "none", "cache": False}
    started = time.perf_counter()
    try:
        got = torch.compile(function, backend="turbine_lite_cpu", options=options)(x, y)
        error = None if torch.allclose(got, function(x, y), atol=1e-5) else "the result is wrong"
    except Exception as failure:  # whatever it is, that is the answer
        error = str(failure).partition("\n")[0]
    return {
        "passed": not error,
        "seconds": round(time.perf_counter() - started, 1),
        **({"error": error} if error else {}),
    }
