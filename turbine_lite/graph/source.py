"""From an FX node back to the line that the user wrote."""

from __future__ import annotations

import re

from torch.fx import Node

__all__ = ["format_line", "source_line"]

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>[^\n]+)(?:\n\s*(?P<code>[^\n]+))?')


def source_line(node: Node) -> str:
    """``file:line in function: code`` of the innermost known frame, or "" when Dynamo recorded none."""
    frames = list(_FRAME.finditer(node.meta.get("stack_trace") or ""))
    if not frames:
        return ""
    frame = frames[-1]
    return format_line(frame["file"], frame["line"], frame["function"], frame["code"])


def format_line(file: str, line: object, function: str, code: str | None) -> str:
    """``file:line in function: code``; the code may be unknown."""
    return f"{file}:{line} in {function.strip()}" + (f": {code.strip()}" if code else "")
