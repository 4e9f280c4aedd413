"""Artifacts of torch's structured trace: what ``TORCH_TRACE=<directory>`` and tlparse show of each graph."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from torch._logging._internal import trace_structured

__all__ = ["trace_json", "trace_text"]


def trace_text(name: str, text: Callable[[], str]) -> None:
    """Add a text as ``turbine_lite_<name>``; it is made only if there is a trace."""
    _trace(name, "string", text)


def trace_json(name: str, value: Callable[[], Mapping[str, Any]]) -> None:
    """Add a value that JSON has, or what ``str`` makes of it."""
    _trace(name, "json", lambda: json.dumps(value(), default=str))


def _trace(name: str, encoding: str, payload: Callable[[], str]) -> None:
    trace_structured(
        "artifact",
        metadata_fn=lambda: {"name": f"turbine_lite_{name}", "encoding": encoding},
        payload_fn=payload,
    )
