from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from turbine_lite.graph.support import Reason
from turbine_lite.options import MODES, Options

README = Path(__file__).parents[2] / "README.md"


def test_the_options_table_is_current():
    rows = [f"| `{name}` | `{default}` | `{env}` | {doc} |" for name, default, env, doc in Options.table()]
    assert "\n".join(rows) in README.read_text()
    assert all(f"`{mode}`" in README.read_text() for mode in MODES)


def test_the_kinds_of_reasons_are_all_there():
    kinds = re.findall(r'"([a-z-]+)"', Reason.__doc__.split("kind:")[1].split("text:")[0])
    rows = [line.split("|")[1] for line in README.read_text().splitlines() if line.startswith("| `")]
    documented = {kind for row in rows for kind in re.findall(r"`([a-z-]+)`", row)}
    assert len(kinds) > 15
    assert set(kinds) <= documented


def test_the_python_blocks_run(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(blocks) == 8
    script = tmp_path / "script.py"
    script.write_text("\n".join(blocks))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.stdout.startswith("torch.Size([2, 8])\n"), done.stderr
    assert "\n2 graphs, 9 of 9 operators in IREE (100%)\n" in done.stdout
    assert 'stablehlo.composite "mylib.attention"' in done.stdout
    assert "this machine: " in done.stdout.splitlines()[-1]
    assert [line for line in done.stderr.splitlines() if not line.startswith("USDT:")] == []  # torch's profiler's
    region = tmp_path / "dump" / "0000_inference" / "region_0"
    assert "torch.aten.mm" in (region / "torch.mlir").read_text()
    assert "script.py" in (region / "torch.mlir").read_text()


@pytest.mark.parametrize(
    "command",
    [(sys.executable, "-m", "turbine_lite.demo"), (str(Path(sysconfig.get_path("scripts"), "turbine-lite")), "demo")],
)
def test_the_demo_runs_and_agrees_with_eager(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "equal within 1e-4" in done.stdout
    assert re.search(r"eager [\d.]+ ms, turbine_lite [\d.]+ ms, ratio [\d.]+", done.stdout)


_MODEL = """\
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = torch.nn.Conv2d(3, 4, 7, 16)
        self.head = torch.nn.Linear(4, 5)

    def forward(self, images):
        return self.head(self.convolution(images).relu().mean((2, 3)))
"""


def test_the_commands_run(tmp_path):
    blocks = re.findall(r"```sh\n(.*?)```", README.read_text(), re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("turbine-lite ")]
    assert len(lines) > 10
    (tmp_path / "model.py").write_text(_MODEL)
    scripts = sysconfig.get_path("scripts")
    environment = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    has_compiler = any(shutil.which(name) for name in ("g++", "clang++"))  # which inductor needs
    for line in lines if has_compiler else [line.replace("--against inductor", "") for line in lines]:
        done = subprocess.run(
            ["sh", "-c", line], capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
        )
        assert done.returncode == 0, (line, done.stdout, done.stderr)
