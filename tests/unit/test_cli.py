"""``turbine-lite`` through the real executable."""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
from pathlib import Path

import pytest

_MODELS = """\
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 4)
    def forward(self, x):
        return torch.softmax(self.linear(x) * 2, -1)

model = Net()

def function(x, y):
    return (x @ y).relu() + 1

def make():
    return Net(), (torch.randn(3, 8),)

def with_fallback(x):
    return torch.special.airy_ai(x * 2 + 1).sin()

def broken():
    raise KeyError("weights")

number = 5
"""


@pytest.fixture
def run(tmp_path):
    """Calls the executable in a folder with ``models.py``; returns the finished process."""
    (tmp_path / "models.py").write_text(_MODELS)

    def call(*arguments):
        command = [str(Path(sysconfig.get_path("scripts"), "turbine-lite")), *arguments]
        environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)

    return call


def _json(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_help_teaches(run):
    done = run("--help")
    assert done.returncode == 0
    commands = ("info", "demo", "run", "explain", "profile", "inspect", "lower", "compile", "verify", "bench", "cache")
    assert all(f"    {command} " in done.stdout for command in commands)
    assert "turbine-lite lower model.py:Net --input 1x3x224x224xf32" in done.stdout
    assert "sizes and type, such as" in run("run", "--help").stdout


def test_info(run):
    found = _json(run("info", "--self-test", "--json"))
    assert found["self-test"]["passed"] is True
    assert found["drivers"] == ["local-sync", "local-task"]
    assert found["versions"]["torch"].startswith("2.13")
    assert "iree-base-compiler" in run("info").stdout


@pytest.mark.parametrize(
    "model",
    [
        ("models.py:Net", "--input", "3x8xf32"),
        ("models.py", "--input", "3x8xf32"),
        ("models:model", "--input", "3x8xf32"),
        ("models.py:make",),
        ("models.py:function", "--input", "3x8xf32", "--input", "8x4xf32", "--option", "extern=none"),
        ("models.py:Net", "--input", "3x8xf32", "--train", "--mode", "reduce-overhead"),
        ("models.py:Net", "--input", "3x8xf32", "--dynamic"),
    ],
)
def test_run(run, model):
    done = run("run", *model)
    assert done.returncode == 0, done.stderr
    assert "result 0: torch.float32 [3, 4], equal to eager's" in done.stdout


def test_run_for_machines(run):
    assert _json(run("run", "models.py:make", "--json"))["operators_in_iree"] > 0


def test_explain(run, tmp_path):
    done = run("explain", "models.py:with_fallback", "--input", "5xf32", "--write-repro", "repro")
    assert done.returncode == 0, done.stderr
    assert "special_airy_ai" in done.stdout
    assert list(tmp_path.rglob("reproduce.py"))
    found = _json(run("explain", "models.py:Net", "--input", "3x8xf32", "--train", "--json"))
    assert [graph["report"]["kind"] for graph in found["graphs"]] == ["forward", "backward"]


def test_profile(run, tmp_path):
    done = run("profile", "models.py:function", "--input", "3x8xf32", "--input", "8x4xf32", "--trace", "t.json")
    assert done.returncode == 0, done.stderr
    assert "models.py:14" in done.stdout
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    found = _json(run("profile", "models.py:Net", "--input", "3x8xf32", "--train", "--runs", "2", "--json"))
    assert found["wall_seconds"] > 0
    run("inspect", "models.py:Net", "--input", "3x8xf32", "--train", "--runs", "1", "-o", "trained.html")
    assert "graph 1, backward" in (tmp_path / "trained.html").read_text()


def test_inspect(run, tmp_path):
    done = run("inspect", "models.py:Net", "--input", "3x8xf32", "--runs", "2", "-o", "page.html")
    assert (done.returncode, done.stdout) == (0, "page.html\n"), done.stderr
    page = (tmp_path / "page.html").read_text()
    assert "self.linear(x)" in page
    assert "linalg.softmax" in page or "linalg.generic" in page
    assert run("inspect", "models.py:Net", "--input", "3x8xf32", "--no-compile", "-o", "short.html").returncode == 0
    assert len((tmp_path / "short.html").read_text()) < len(page)


def test_lower(run):
    done = run("lower", "models.py:function", "--input", "3x8xf32", "--input", "8x4xf32")
    assert done.returncode == 0, done.stderr
    assert "linalg.matmul" in done.stdout
    assert "torch.aten.mm" in run("lower", "models.py:make", "--stage", "torch").stdout
    assert "flow.dispatch" in run("lower", "models.py:make", "--stage", "flow").stdout
    done = run("lower", "models.py:Net", "--input", "3x8xf32", "--train")
    assert "// 0000_forward/region_0" in done.stdout
    assert "// 0001_backward/region_0" in done.stdout


def test_lower_where_nothing_is_compiled(run):
    done = run("lower", "models.py:with_fallback", "--input", "5xf32", "--option", "disabled_ops=aten.sin,aten.mul")
    assert (done.returncode, "turbine-lite explain says why" in done.stdout) == (1, True)


def test_compile(run, tmp_path):
    done = run("compile", "models.py:make", "-o", "out", "--stages", "flow", "assembly")
    assert done.returncode == 0, done.stderr
    region = tmp_path / "out" / "0000_inference" / "region_0"
    assert (region / "module.vmfb").stat().st_size > 1000
    assert (region / "assembly.s").exists()
    assert not (region / "stream.mlir").exists()
    assert str(Path("out", "INDEX.md")) in done.stdout


def test_verify(run):
    done = run("verify", "models.py:make")
    assert (done.returncode, done.stdout) == (0, "equal to eager\n")


def test_bench(run):
    found = _json(run("bench", "models.py:make", "--runs", "3", "--against", "aot_eager", "--json"))
    assert set(found["seconds"]) == {"eager", "turbine_lite", "aot_eager"}
    assert "turbine_lite" in run("bench", "models.py:make", "--runs", "2").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "missing.py:f"), "turbine-lite: there is no file missing.py"),
        (("run", "missing_module:f"), "turbine-lite: cannot import missing_module: ModuleNotFoundError: "),
        (("run", "models.py:Nett"), "turbine-lite: models.py has no 'Nett'; what can be called there: Net, "),
        (("run", "models.py:number"), "turbine-lite: models.py:number is of type int, which cannot be called; "),
        (("run", "models.py:broken"), "turbine-lite: models.py:broken() failed: KeyError: 'weights'"),
        (("run", "models.py:Net", "--input", "3x8"), "turbine-lite: input '3x8' is not sizes and a type such as "),
        (("run", "models.py:Net", "--input", "3xi64=5:5"), "turbine-lite: input '3xi64=5:5': the range from 5 to "),
        (("run", "models.py:Net", "--input", "3x7xf32"), "turbine-lite: RuntimeError: mat1 and mat2 shapes cannot be "),
        (("run", "models.py:make", "--option", "extren=none"), "turbine-lite: unknown option 'extren' (did you mean "),
        (("run", "models.py:make", "--option", "extern=no"), "turbine-lite: --option extern must be one of auto, none"),
        (("run", "models.py:make", "--mode", "fast"), "turbine-lite: unknown mode 'fast'"),
        (("bench", "models.py:make", "--against", "nobody"), "turbine-lite: InvalidBackend: "),
        (("bench", "models.py:make", "--runs", "0"), "argument --runs: must be above 0"),
        (("lower", "models.py:make", "--stage", "linalg"), "argument --stage: invalid choice: 'linalg'"),
        (("compile", "models.py:make"), "the following arguments are required: -o/--output"),
        (("compile", "models.py:make", "-o", "models.py"), "turbine-lite: "),
        (
            ("inspect", "models.py:make", "-o", "none/page.html"),
            "turbine-lite: cannot write none/page.html: there is no ",
        ),
        (("optimise",), "turbine-lite: error: argument COMMAND: invalid choice: 'optimise'"),
        ((), "turbine-lite: error: the following arguments are required: COMMAND"),
    ],
)
def test_wrong_input_is_one_line_and_status_2(run, arguments, message):
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert message in last
    assert "Traceback" not in done.stderr
    if not last.startswith("turbine-lite") or ": error: " not in last:  # argparse's have the usage before them
        assert len(done.stderr.splitlines()) == 1, done.stderr


def test_debug_has_the_traceback(run):
    done = run("--debug", "run", "models.py:Nett")
    assert done.returncode == 2
    assert "Traceback" in done.stderr
    assert "ModelError" in done.stderr


def test_export_package_and_op(run, tmp_path):
    done = run("export", "models.py", "--input", "3x8xf32", "--weights", "external", "-o", "net.mlir")
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["net.mlir", "net.safetensors"]
    assert "stablehlo.dot_general" in (tmp_path / "net.mlir").read_text()
    done = run("package", "models.py:make", "-o", "net.tl", "--target", "x86-64-v3", "--target", "host")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("net.tl ")
    done = run("op", "aten.addmm", "--input", "4xf32", "--input", "2x3xf32", "--input", "3x4xf32", "--dialect", "tosa")
    assert "tosa.matmul" in done.stdout
    done = run("op", "aten.sum.dim_IntList", "--input", "2x3xf32", "--arg", "[1]", "--arg", "true")
    assert "tensor<2x1xf32>" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("op", "aten.nothing"), "torch has no operator 'aten.nothing'"),
        (("op", "aten"), "torch has no operator 'aten'"),
        (("op", "aten.sin", "--input", "3xq8"), "3xq8"),
        (("op", "aten.sum", "--input", "3xf32", "--arg", "[1"), "cannot read the argument '[1'"),
        (("export", "models.py", "--input", "3x8xf32", "-o", "no/net.mlir"), "there is no directory no"),
        (("export", "models.py", "--input", "3x9xf32", "-o", "net.mlir"), "shapes"),
        (("package", "models.py", "--input", "3x8xf32", "-o", "no/net.tl"), "there is no directory no"),
        (("export", "models.py:number", "-o", "net.mlir"), "cannot be called"),
    ],
)
def test_wrong_input_to_commands_that_write_programs(run, arguments, said):
    done = run(*arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
