from __future__ import annotations

import logging
import subprocess
import sys

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed

from tests.helpers import assert_same, compiled
from turbine_lite.errors import CompilationError


def run_python(code: str, cwd: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=cwd, check=False)


def test_is_listed_without_an_import():
    assert "turbine_lite_cpu" in torch._dynamo.list_backends()


def test_works_from_any_folder_without_an_import_and_prints_nothing_else(tmp_path):
    # A file that would stand in for a module, were the worker to look into the working directory.
    (tmp_path / "pickle.py").write_text("raise SystemExit('wrong pickle')")
    code = (
        "import sys; sys.path.pop(0); import torch;"
        "print(torch.compile(torch.nn.Linear(4, 3), backend='turbine_lite_cpu')(torch.randn(2, 4)).shape)"
    )
    done = run_python(code, tmp_path)
    assert (done.stdout, done.stderr, done.returncode) == ("torch.Size([2, 3])\n", "", 0)


def test_exit_is_clean_after_an_exception(tmp_path):
    code = (
        "import torch;"
        "f = torch.compile(lambda x: x + 1, backend='turbine_lite_cpu'); f(torch.ones(3));"
        "raise ValueError('mine')"
    )
    done = run_python(code, tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1
    assert done.stderr.rstrip().endswith("ValueError: mine")


def test_importing_the_package_loads_no_compiler(tmp_path):
    code = (
        "import sys, turbine_lite, turbine_lite.options;"
        "print([m for m in ('torch', 'torch_mlir', 'iree.compiler', 'iree.runtime') if m in sys.modules])"
    )
    done = run_python(code, tmp_path)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_loading_the_entry_point_loads_no_compiler(tmp_path):
    code = (
        "import sys, torch; torch._dynamo.lookup_backend('turbine_lite_cpu');"
        "print([m for m in ('torch_mlir', 'iree.compiler', 'iree.runtime') if m in sys.modules])"
    )
    assert run_python(code, tmp_path).stdout == "[]\n"


def test_unknown_option_reaches_the_user():
    with pytest.raises(BackendCompilerFailed, match="OptionError: unknown option 'x'"):
        torch.compile(lambda x: x + 1, backend="turbine_lite_cpu", options={"x": 1})(torch.ones(2))


def test_other_devices_are_refused_with_advice():
    with pytest.raises(BackendCompilerFailed, match=r"input 0 is on device meta; .*\.to\('cpu'\)"):
        torch.compile(lambda x: x + 1, backend="turbine_lite_cpu")(torch.ones(2, device="meta"))


def test_sparse_tensors_run_as_in_eager():
    x = torch.eye(3).to_sparse()
    got = torch.compile(lambda x, y: torch.sparse.mm(x, y) + 1, backend="turbine_lite_cpu")(x, torch.ones(3, 2))
    assert_same(got, torch.full((3, 2), 2.0))


def test_fallback_error_raises_with_operator_and_source_line():
    with pytest.raises(BackendCompilerFailed, match=r"cannot compile aten.special_airy_ai") as caught:
        compiled(lambda x: torch.special.airy_ai(x) + 1)(torch.ones(3))
    assert isinstance(caught.value.inner_exception, CompilationError)
    assert "test_backend.py" in str(caught.value)
    assert caught.value.inner_exception.reasons[0].source.startswith(__file__)


def test_fallback_warns_once_and_names_operator_line_and_reason(caplog):
    def function(x):
        return torch.special.laguerre_polynomial_l(x, 2) + 1

    x = torch.randn(5)
    for _ in range(2):
        torch._dynamo.reset()
        assert_same(torch.compile(function, backend="turbine_lite_cpu")(x), function(x))
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "torch-mlir has no such operator" in warnings[0]
    assert "test_backend.py" in warnings[0]


def test_disabled_ops_run_in_eager_also_under_fallback_error():
    x = torch.randn(4, 4)
    function = compiled(lambda x: torch.relu(x @ x) + 1, disabled_ops=("aten.mm",))
    assert_same(function(x), torch.relu(x @ x) + 1)
    assert torch._dynamo.utils.counters["turbine_lite"]["eager aten.mm.default: disabled"] == 1


def test_in_process_compiler():
    x = torch.randn(4)
    assert_same(compiled(lambda x: x * 2, compiler="in-process")(x), x * 2)


def test_compile_flags_replace_ours():
    x = torch.randn(4)
    assert_same(compiled(lambda x: x * 3, compile_flags=("--iree-opt-level=O0",))(x), x * 3)


def test_a_wrong_compile_flag_is_named():
    with pytest.raises(BackendCompilerFailed, match="no-such-flag"):
        compiled(lambda x: x * 4, compile_flags=("--no-such-flag",))(torch.ones(2))


def test_a_fault_of_ours_is_no_fault_of_the_users(monkeypatch, caplog):
    def broken(*args):
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("turbine_lite.compile_region.import_region", broken)
    x = torch.randn(3)
    assert_same(torch.compile(lambda x: x * 11, backend="turbine_lite_cpu")(x), x * 11)
    assert "internal error: ZeroDivisionError: planted" in caplog.text
    torch._dynamo.reset()
    with pytest.raises(BackendCompilerFailed, match="planted"):
        compiled(lambda x: x * 12)(x)
