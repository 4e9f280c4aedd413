"""A captured graph as a script that needs turbine_lite and PyTorch only.

The script makes arguments of the captured dtypes, sizes and strides (whole numbers are 0 or 1, since some are indices)
and compares eager with ``turbine_lite_cpu``.
"""

from __future__ import annotations

import dataclasses
import io
import pprint
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule

from turbine_lite.graph.sizes import size_hint
from turbine_lite.options import Options

__all__ = ["write_graph_script"]

_DEFAULTS = dataclasses.asdict(Options())

_SCRIPT = '''"""A captured graph ({kind}), in eager and through turbine_lite."""

from math import inf, nan
from pathlib import Path

import torch
from torch import device

CONSTANTS = torch.load(Path(__file__).with_name("constants.pt"))
OPTIONS = {options}
# dtype, sizes and strides of each tensor; numbers are themselves
ARGUMENTS = {arguments}


class Graph(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for name, value in CONSTANTS.items():
            self.register_buffer(name, value)

{code}


def argument(spec):
    if not isinstance(spec, tuple):
        return spec
    dtype, sizes, strides = spec
    elements = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides) if size)
    values = torch.rand(elements) if dtype.is_floating_point or dtype.is_complex else torch.randint(0, 2, (elements,))
    return values.to(dtype).as_strided(sizes, strides)


def run(function):
    torch.manual_seed(0)
    with torch.no_grad():
        return function(*arguments)


torch.manual_seed(0)
arguments = [argument(spec) for spec in ARGUMENTS]
graph = Graph()
compiled = torch.compile(graph, backend="turbine_lite_cpu", options=OPTIONS)
pairs = [pair for pair in zip(run(compiled), run(graph)) if isinstance(pair[1], torch.Tensor)]
for number, (mine, theirs) in enumerate(pairs):
    largest = theirs.abs().nan_to_num().max().item() if theirs.is_floating_point() and theirs.numel() else 1.0
    message = f"result {{number}} differs: {{{{}}}}".format
    torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4 * max(1.0, largest), equal_nan=True, msg=message)
print(f"{{len(pairs)}} results equal")
'''


def write_graph_script(module: GraphModule, kind: str, options: Mapping[str, Any], folder: Path) -> Path:
    """Write ``reproduce.py`` and what it needs into a folder.

    Args:
        module: the graph; its placeholders carry fake values.
        kind: "inference", "forward" or "backward".
        options: values of all options, by name.
        folder: made if it is not there.

    Raises:
        OSError: the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    constants = io.BytesIO()  # torch.save reports a full disk as a RuntimeError
    torch.save(dict(module.state_dict()), constants)
    (folder / "constants.pt").write_bytes(constants.getvalue())
    script = folder / "reproduce.py"
    script.write_text(_script(module, kind, options))
    return script


def _script(module: GraphModule, kind: str, options: Mapping[str, Any]) -> str:
    changed = {name: value for name, value in options.items() if value != _DEFAULTS[name]}
    arguments = [_spec(node.meta["val"]) for node in module.graph.nodes if node.op == "placeholder"]
    return _SCRIPT.format(
        kind=kind,
        options=pprint.pformat(changed),
        arguments=f"[\n{''.join(f'    {spec},{chr(10)}' for spec in arguments)}]",
        code="\n".join("    " + line for line in module.code.strip().splitlines()),
    )


def _spec(value: Any) -> str:
    """A placeholder's value as Python text, dynamic sizes as they were when the graph was captured."""
    if not isinstance(value, torch.Tensor):
        return repr(size_hint(value) if isinstance(value, (int, torch.SymInt)) else 1.0)
    sizes, strides = (tuple(map(size_hint, numbers)) for numbers in (value.shape, value.stride()))
    return f"({value.dtype}, {sizes}, {strides})"
