"""``compile="background"``: eager until the compiler is done."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading

import pytest
import torch
from torch._dynamo.utils import counters

import turbine_lite
from tests.helpers import assert_same, assert_same_gradients
from turbine_lite.compiler import cached
from turbine_lite.errors import CompilationError, OptionError
from turbine_lite.runtime.executable import SpecializedExecutable


@pytest.fixture
def compiler(monkeypatch):
    """An event that lets the compiler go on."""
    go = threading.Event()
    real = cached.compile_to_vmfb

    def wait_and_compile(*args):
        assert go.wait(60)
        return real(*args)

    monkeypatch.setattr(cached, "compile_to_vmfb", wait_and_compile)
    yield go
    go.set()
    assert turbine_lite.wait_for_compilation(60)


def _function(x):
    return torch.softmax(x * 2.25, -1) + 1


def _compiled(function=_function, **options):
    return torch.compile(function, backend="turbine_lite_cpu", options={"compile": "background", **options})


def test_calls_run_in_eager_and_then_in_iree(compiler, monkeypatch):
    in_iree = []
    real = SpecializedExecutable.run
    monkeypatch.setattr(SpecializedExecutable, "run", lambda self, args: in_iree.append(1) or real(self, args))
    run, x = _compiled(), torch.randn(3, 7)
    for _ in range(2):
        assert torch.equal(run(x), _function(x))  # to the bit
    assert not in_iree
    assert not turbine_lite.wait_for_compilation(0.05)
    assert counters["turbine_lite"]["executables"] == 0
    compiler.set()
    assert turbine_lite.wait_for_compilation(60)
    assert counters["turbine_lite"]["executables"] == 1
    for _ in range(2):
        assert_same(run(x), _function(x))
    assert len(in_iree) >= 2
    assert counters["turbine_lite"]["graphs"] == 1


def test_training(compiler):
    torch.manual_seed(0)
    model, copy = (torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)) for _ in "ab")
    copy.load_state_dict(model.state_dict())
    run, x = _compiled(model), torch.randn(5, 8)
    for step in range(4):
        if step == 2:
            compiler.set()
            assert turbine_lite.wait_for_compilation(60)
        run(x).square().sum().backward()
        copy(x).square().sum().backward()
        assert_same_gradients(model, copy)
    assert counters["turbine_lite"]["graphs"] == 2


def test_threads_that_call_meanwhile(compiler):
    run, x = _compiled(), torch.randn(3, 7)
    run(x)
    wrong = []
    done = threading.Event()

    def call():
        while not done.is_set():
            if not torch.allclose(run(x), _function(x)):
                wrong.append(1)

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    compiler.set()
    assert turbine_lite.wait_for_compilation(60)
    assert_same(run(x), _function(x))
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("fallback", ["eager", "error"])
def test_what_does_not_compile(monkeypatch, fallback, caplog):
    def refuse(*args):
        raise CompilationError(f"refused, {fallback}", stage="flags")

    def function(x):
        return torch.softmax(x * 7.125, -1) + 3

    monkeypatch.setattr(cached, "compile_to_vmfb", refuse)
    run, x = _compiled(function, fallback=fallback), torch.randn(3, 7)
    with contextlib.suppress(CompilationError):  # it may be refused already
        assert torch.equal(run(x), function(x))
    assert turbine_lite.wait_for_compilation(60)
    if fallback == "error":
        for _ in range(2):
            with pytest.raises(CompilationError, match="refused"):
                run(x)
    else:
        assert torch.equal(run(x), function(x))
        assert sum("refused" in message for message in caplog.messages) == 1


def test_an_interpreter_that_exits_meanwhile():
    code = (
        "import torch\n"
        "def f(x):\n"
        "    for _ in range(60): x = torch.tanh(x @ x)\n"
        "    return x\n"
        "run = torch.compile(f, backend='turbine_lite_cpu', options={'compile': 'background'})\n"
        "print(run(torch.ones(31, 31)).shape)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("torch.Size([31, 31])\n", "", 0)


def test_not_with_autotune():
    with pytest.raises(OptionError, match="choose one of the two"):
        turbine_lite.Options.resolve({"compile": "background"}, "max-autotune")


def test_nothing_to_wait_for():
    assert turbine_lite.wait_for_compilation()
    assert turbine_lite.wait_for_compilation(0)
