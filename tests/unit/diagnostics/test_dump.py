from __future__ import annotations

import json
import shlex
import subprocess
import sysconfig
from pathlib import Path

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed

from tests.helpers import compiled
from turbine_lite.compiler.stages import STAGES, file_of


def run_command(command: str) -> None:
    program, *arguments = shlex.split(command)
    subprocess.run([str(Path(sysconfig.get_path("scripts"), program)), *arguments], check=True)


def test_linear_has_every_stage_and_the_command_reproduces_the_vmfb(tmp_path, monkeypatch):
    monkeypatch.setenv("TURBINE_LITE_DUMP", str(tmp_path))
    with torch.no_grad():
        torch.compile(torch.nn.Linear(16, 8), backend="turbine_lite_cpu")(torch.randn(4, 16))
    graph = tmp_path / "0000_inference"
    assert {path.name for path in tmp_path.iterdir()} == {"INDEX.md", graph.name}
    assert (
        "torch.ops.aten.addmm" in (graph / "fx_graph.py").read_text()
        or "aten.mm" in (graph / "fx_graph.py").read_text()
    )
    region = graph / "region_0"
    torch_text = (region / "torch.mlir").read_text()
    assert "torch.aten.mm" in torch_text
    assert "linalg.matmul" in (region / "iree-input.mlir").read_text()
    assert "hal.executable" in (region / "executable-sources.mlir").read_text()
    manifest = json.loads((region / "manifest.json").read_text())
    assert manifest["versions"]["torch"] == torch.__version__
    assert "--iree-llvmcpu-target-cpu=host" in manifest["flags"]
    run_command(manifest["command"])
    assert (region / "reproduced.vmfb").read_bytes() == (region / "module.vmfb").read_bytes()


def test_source_locations_survive_into_the_mlir(tmp_path):
    compiled(lambda x: x.exp() + 1, dump_dir=str(tmp_path))(torch.ones(2))
    region = tmp_path / "0000_inference" / "region_0"
    assert "test_dump.py" in (region / "torch.mlir").read_text()
    assert "fx/exp" in (region / "torch.mlir").read_text()


def test_each_graph_has_a_number(tmp_path):
    model = torch.compile(torch.nn.Linear(3, 3), backend="turbine_lite_cpu", options={"dump_dir": str(tmp_path)})
    model(torch.randn(2, 3)).sum().backward()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0000_forward", "0001_backward", "INDEX.md"]


def _compile_inference(**options):
    with torch.no_grad():
        compiled(torch.nn.Linear(5, 3), **options)(torch.randn(2, 5))


def _compile_training(**options):
    compiled(torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.Tanh()), **options)(torch.randn(2, 5)).sum().backward()


def _compile_dynamic(**options):
    torch.compile(
        lambda x: torch.softmax(x, -1) * 2, backend="turbine_lite_cpu", options=options, dynamic=True, fullgraph=True
    )(torch.randn(4, 5))


@pytest.mark.parametrize("compile_it", [_compile_inference, _compile_training, _compile_dynamic])
def test_every_stage_that_is_asked_for_is_there(tmp_path, compile_it):
    compile_it(dump_dir=str(tmp_path), dump_stages=["all"])
    regions = [path for path in tmp_path.rglob("region_*") if path.is_dir()]
    assert len(regions) == (2 if compile_it is _compile_training else 1)
    index = (tmp_path / "INDEX.md").read_text()
    for region in regions:
        for stage in STAGES:
            assert (region / file_of(stage)).stat().st_size > 100
            assert f"({(region / file_of(stage)).relative_to(tmp_path).as_posix()})" in index
        assert "define" in (region / "llvm-ir.ll").read_text()
        assert "vm.module" in (region / "vm.mlir").read_text()
        command = json.loads((region / "manifest.json").read_text())["command"]
        run_command(command)  # stopping on the way changes nothing
        assert (region / "reproduced.vmfb").read_bytes() == (region / "module.vmfb").read_bytes()


def test_stages_that_are_not_asked_for_are_not_there(tmp_path, monkeypatch):
    monkeypatch.setenv("TURBINE_LITE_DUMP_STAGES", "flow, assembly")
    _compile_inference(dump_dir=str(tmp_path))
    (region,) = tmp_path.rglob("region_*")
    assert {path.name for path in region.iterdir()} & {file_of(stage) for stage in STAGES} == {
        "flow.mlir",
        "assembly.s",
    }
    assert ".globl" in (region / "assembly.s").read_text()


def test_a_stage_that_there_is_not(tmp_path):
    with pytest.raises(BackendCompilerFailed, match=r"dump_stages.*must be of all, iree-input, .*'linalg'"):
        _compile_inference(dump_dir=str(tmp_path), dump_stages=["linalg"])


def test_large_constants_are_elided_unless_asked_for(tmp_path):
    table = torch.arange(16.0)

    def function(x):
        return x + torch.tensor([0.5, 1.25, 2.125, 3.0625] * 4)

    def text(directory, **options):
        torch._dynamo.reset()
        compiled(function, dump_dir=str(directory), **options)(table)
        return (directory / "0000_inference" / "region_0" / "iree-input.mlir").read_text()

    assert "2.125" in text(tmp_path / "full", dump_weights=True) or "0x" in text(tmp_path / "f2", dump_weights=True)


def test_a_failure_leaves_diagnostics_and_a_command(tmp_path):
    with pytest.raises(BackendCompilerFailed) as caught:
        compiled(lambda x: (x @ x) * 2, dump_dir=str(tmp_path), compile_timeout=0.001)(torch.ones(8, 8))
    text = str(caught.value)
    assert "longer than 0.001 s" in text
    assert f"IR saved in: {tmp_path}" in text
    assert "reproduce with: iree-compile" in text
    assert "error" in json.loads((tmp_path / "0000_inference" / "region_0" / "manifest.json").read_text())


def test_eager_parts_are_recorded_with_reasons(tmp_path):
    torch.compile(
        lambda x: (torch.special.airy_ai(x) + 1).exp().sin(),
        backend="turbine_lite_cpu",
        options={"dump_dir": str(tmp_path)},
    )(torch.ones(3))
    manifest = json.loads((tmp_path / "0000_inference" / "manifest.json").read_text())
    assert [(reason["op"], reason["kind"]) for reason in manifest["reasons"]] == [
        ("aten.special_airy_ai.default", "not-importable")
    ]


def test_an_unusable_directory_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BackendCompilerFailed, match=r"dump_dir .*file.* cannot be used"):
        compiled(lambda x: x + 1, dump_dir=str(tmp_path / "file"))(torch.ones(2))
