"""From an FX node back to the line that the user wrote."""

from __future__ import annotations

import re

from torch.fx import Node

__all__ = ["source_line"]

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>[^\n]+)(?:\n\s*(?P<code>[^\n]+))?')


def source_line(node: Node) -> str:
    """``file:line in function: code`` of the innermost known frame, or "" when Dynamo recorded none."""
    frames = list(_FRAME.finditer(node.meta.get("stack_trace") or ""))
    if not frames:
        return ""
    frame = frames[-1]
    code = f": {frame['code'].strip()}" if frame["code"] else ""
    return f"{frame['file']}:{frame['line']} in {frame['function'].strip()}{code}"
