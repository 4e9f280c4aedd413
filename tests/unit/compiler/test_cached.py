"""Programs that another process has compiled."""

from __future__ import annotations

import dataclasses
import logging
import os
import subprocess
import sys

import pytest
import torch

from tests.helpers import assert_same
from turbine_lite.compiler import cached, memo
from turbine_lite.compiler.cache import CacheDirectory, Entry
from turbine_lite.compiler.pipeline import Response
from turbine_lite.errors import CompilationError, CompilerCrashError, CompilerKilledError


@pytest.fixture
def compilations(monkeypatch):
    """What the compiler is asked for; ``compilations.new_process()`` forgets what this process knows."""

    class Compilations(list):
        def new_process(self):
            torch._dynamo.reset()
            monkeypatch.setattr(memo, "_programs", type(memo._programs)())
            self.clear()

    asked = Compilations()

    def counted(name):
        real = getattr(cached, name)

        def call(*args):
            asked.append(name)
            return real(*args)

        return call

    for name in ("compile_to_vmfb", "check_lowering", "check_compiling"):
        monkeypatch.setattr(cached, name, counted(name))
    asked.new_process()
    return asked


def _run(function=lambda x: torch.softmax(x * 2, -1), **options):
    torch._dynamo.reset()
    x = torch.randn(3, 7)
    assert_same(torch.compile(function, backend="turbine_lite_cpu", options=options)(x), function(x))


def test_a_later_process_compiles_nothing(compilations):
    _run()
    assert compilations == ["compile_to_vmfb"]
    compilations.new_process()
    _run()
    assert compilations == []


def test_no_compiler_process_starts(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import torch\n"
        "from turbine_lite.compiler import client\n"
        "x = torch.randn(3, 4)\n"
        "function = lambda x: torch.softmax(x * 2, -1).exp() / 3\n"
        "out = torch.compile(function, backend='turbine_lite_cpu')(x)\n"
        "torch.testing.assert_close(out, function(x))\n"
        "print(len(client.worker_pids()))\n"
    )
    command = [sys.executable, "-W", "ignore", script]
    environment = {**os.environ, "TURBINE_LITE_CACHE_DIR": str(tmp_path / "cache")}
    outputs = [subprocess.run(command, env=environment, check=True, capture_output=True).stdout for _ in range(2)]
    assert outputs == [b"1\n", b"0\n"]


def test_without_cache_each_process_compiles_and_nothing_is_written(compilations):
    for _ in range(2):
        compilations.new_process()
        _run(cache=False)
        assert compilations == ["compile_to_vmfb"]
    assert CacheDirectory().digests() == []


def test_tags_and_flags_are_kept_apart(compilations):
    for options in ({}, {"cache_tag": "a"}, {"opt_level": "O1"}, {}):
        compilations.new_process()
        _run(**options)
        assert compilations == (["compile_to_vmfb"] if len(CacheDirectory().digests()) < 3 or options else [])


def test_the_log_says_in_what_the_nearest_entry_differs(compilations, caplog):
    caplog.set_level(logging.DEBUG, logger="turbine_lite")
    _run()
    assert "cache: no other entry" in caplog.messages
    _run(lambda x: torch.sin(x) + x.exp())
    caplog.clear()
    _run(cache_tag="another")  # nearer than the other program, which has the same tag
    [message] = [message for message in caplog.messages if "nearest entry" in message]
    assert message.endswith("differs in: tag")


def test_a_damaged_entry_is_compiled_again(compilations, caplog):
    _run()
    [digest] = CacheDirectory().digests()
    path = CacheDirectory().root / digest / "module.vmfb"
    path.write_bytes(path.read_bytes()[:-9])
    for expected in (["compile_to_vmfb"], []):
        compilations.new_process()
        _run()
        assert compilations == expected
    assert sum("cannot be used" in message for message in caplog.messages) == 1


def test_what_the_compiler_refuses_is_not_asked_again(compilations):
    def function(x):
        return torch.softmax(x * 2, -1)

    def refused(*args):
        compilations.append("compile_to_vmfb")
        raise CompilationError("no", stage="compile", diagnostics="error: no")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cached, "compile_to_vmfb", refused)
        patch.setattr(cached, "check_compiling", refused)
        _run(function)
    assert compilations
    compilations.new_process()
    _run(function)
    assert compilations == []


def test_a_probe_that_passed_is_not_asked_again(compilations):
    module, options, traits = _module()
    for expected in (["check_lowering"], []):
        cached.check_cached(module, options, traits, compile_too=False)
        assert compilations == expected
        compilations.clear()
    cached.check_cached(module, options, traits, compile_too=True)
    assert compilations == ["check_compiling"]


def _module(name="exp"):
    from torch.fx.experimental.proxy_tensor import make_fx

    from turbine_lite.compile_region import prepare
    from turbine_lite.mlir.importer import import_region
    from turbine_lite.options import Options

    traced = make_fx(lambda x: [x.exp() * 2], tracing_mode="fake")(torch.randn(4))
    next(iter(traced.graph.find_nodes(op="call_function", target=torch.ops.aten.exp.default)))._rename(name)
    gm, _, traits = prepare(traced)
    return import_region(gm), Options(), traits


def test_a_refusal_names_the_nodes_of_the_graph_that_was_refused(compilations, monkeypatch):
    def refused(*args):
        compilations.append("refused")
        raise CompilationError("no", stage="compile", diagnostics="fx/exp:0:0: error: no")

    monkeypatch.setattr(cached, "compile_to_vmfb", refused)
    module, options, traits = _module()
    for _ in range(2):
        with pytest.raises(CompilationError, match="no") as raised:
            cached.start_compiling(module, options, traits).result()
        assert raised.value.diagnostics == "fx/exp:0:0: error: no"
    assert compilations == ["refused"]
    other, _, _ = _module("other")
    assert other.fingerprint() == module.fingerprint()
    with pytest.raises(CompilationError):
        cached.start_compiling(other, options, traits).result()
    assert compilations == ["refused", "refused"]


@pytest.mark.parametrize("death", [CompilerCrashError, CompilerKilledError])
def test_a_death_is_not_kept(compilations, monkeypatch, death):
    def die(*args):
        raise death("died", stage="compile")

    module, options, traits = _module()
    with monkeypatch.context() as patch:
        patch.setattr(cached, "compile_to_vmfb", die)
        with pytest.raises(death):
            cached.start_compiling(module, options, traits).result()
    assert CacheDirectory().digests() == []
    assert cached.start_compiling(module, options, traits).result().vmfb


def test_what_was_made_after_a_kill_is_not_kept(compilations, monkeypatch):
    from turbine_lite.compiler import driver

    deaths = [CompilerKilledError("killed", stage="compile")]

    def run(*args, **kwargs):
        if deaths:
            raise deaths.pop()
        return Response(b"mild", None, (), {}, {})

    monkeypatch.setattr(driver, "_run", run)
    module, options, traits = _module()
    compiled = cached.start_compiling(module, options, traits).result()
    assert (compiled.vmfb, compiled.by_chance) == (b"mild", True)
    assert CacheDirectory().digests() == []


def test_verify_replaces_what_is_another_program(compilations, caplog):
    module, options, traits = _module()
    options = dataclasses.replace(options, cache_verify=True)
    made = cached.start_compiling(module, options, traits).result()
    compilations.new_process()
    assert cached.start_compiling(module, options, traits).result().vmfb == made.vmfb
    assert compilations == ["compile_to_vmfb"]
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]
    [digest] = CacheDirectory().digests()
    kept = CacheDirectory().read(digest)
    CacheDirectory().remove(digest)
    CacheDirectory().put(digest, Entry(b"another", kept.meta))
    compilations.new_process()
    assert cached.start_compiling(module, options, traits).result().vmfb == made.vmfb
    assert sum("cache_verify" in message for message in caplog.messages) == 1
    assert CacheDirectory().read(digest).vmfb == made.vmfb
