"""From an FX node back to the line that the user wrote."""

from __future__ import annotations

import re
from typing import NamedTuple

from torch.fx import Node

__all__ = ["Frame", "format_line", "source_frame", "source_line"]

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>[^\n]+)(?:\n\s*(?P<code>[^\n]+))?')


class Frame(NamedTuple):
    """A line of code; ``code`` is "" where it is not known."""

    file: str
    line: int
    function: str
    code: str


def source_frame(node: Node) -> Frame | None:
    """The innermost known frame, or None when Dynamo recorded none."""
    frames = list(_FRAME.finditer(node.meta.get("stack_trace") or ""))
    if not frames:
        return None
    frame = frames[-1]
    return Frame(frame["file"], int(frame["line"]), frame["function"], frame["code"] or "")


def source_line(node: Node) -> str:
    """``file:line in function: code`` of the innermost known frame, or "" when Dynamo recorded none."""
    frame = source_frame(node)
    return "" if frame is None else format_line(*frame)


def format_line(file: str, line: object, function: str, code: str | None) -> str:
    """``file:line in function: code``; the code may be unknown."""
    return f"{file}:{line} in {function.strip()}" + (f": {code.strip()}" if code else "")
