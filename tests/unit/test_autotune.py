"""``mode="max-autotune"``: what is tried, what is kept, and that trying is not noticed."""

from __future__ import annotations

import errno
import gc
import json
import logging
import os
import time

import pytest
import torch
from torch._dynamo.utils import counters
from torch.fx.experimental.proxy_tensor import make_fx

from tests.helpers import assert_same, assert_same_gradients
from turbine_lite import autotune, decisions
from turbine_lite.compile_graph import GraphBuild
from turbine_lite.options import Options
from turbine_lite.runtime import tuned
from turbine_lite.runtime.executable import SpecializedExecutable
from turbine_lite.runtime.tuned import Tuned, Version


@pytest.fixture(autouse=True)
def _fresh(monkeypatch, tmp_path):
    torch._dynamo.reset()
    counters.clear()
    monkeypatch.setenv("TURBINE_LITE_CACHE_DIR", str(tmp_path / "cache"))


def _tuned(function, **options):
    return torch.compile(function, backend="turbine_lite_cpu", mode=None, options={"autotune": True, **options})


def _as_in_a_new_process():
    torch._dynamo.reset()
    counters.clear()


def _choices():
    return [name for name in counters["turbine_lite"] if name.startswith("tuned: ")]


def _versions(seconds, calls=None):
    """Versions that take so long, by name."""

    def version(name, duration):
        def run(args):
            if calls is not None:
                calls.append(name)
            time.sleep(duration)
            return (*args, name)

        return Version(name, run, autotune._eager(torch.fx.symbolic_trace(lambda x: x), "inference").report)

    return [version(name, duration) for name, duration in seconds.items()]


def test_the_fastest_is_kept_and_the_others_are_not_called_again():
    calls = []
    run = Tuned(_versions({"slow": 0.02, "fast": 0.001, "middling": 0.01}, calls), 60)
    assert run([1]) == (1, "fast")
    assert set(calls) == {"slow", "fast", "middling"}
    calls.clear()
    assert run([2]) == (2, "fast")
    assert calls == ["fast"]
    assert run.timings["fast"] < run.timings["middling"] < run.timings["slow"]


def test_of_equals_the_first_is_kept(monkeypatch):
    monkeypatch.setattr(tuned, "_time", lambda version, args, calls: 1.0)
    assert Tuned(_versions({"a": 0, "b": 0}), 60)([]) == ("a",)


def test_a_version_that_suffers_from_openmps_threads_is_timed_beside_them(monkeypatch):
    spinning = []

    def version(name, alone, beside):
        def run(args):
            time.sleep(beside if spinning else alone)
            spinning.clear()
            return (name,)

        return Version(name, run, autotune._eager(torch.fx.symbolic_trace(lambda x: x), "inference").report)

    monkeypatch.setattr(tuned, "start_openmp", lambda: spinning.append(True))
    assert Tuned([version("steady", 0.01, 0.01), version("hampered", 0.005, 0.02)], 60)([]) == ("steady",)


def test_time_is_limited():
    calls = []
    Tuned(_versions({"a": 0.2, "b": 0.21}, calls), 0.1)([])
    assert len(calls) == 2 * (3 + 2) + 1  # to load, to warm up and time, and one round of nine; the user's call


def test_a_version_that_fails_is_left_out_but_for_the_first():
    def fail(args):
        raise RuntimeError("no")

    good, bad = _versions({"good": 0, "bad": 0})
    assert Tuned([good, Version("bad", fail, bad.report)], 60)([]) == ("good",)
    broken = Tuned([Version("bad", fail, bad.report), good], 60)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no"):
            broken([])


@pytest.mark.parametrize("mode", ["max-autotune", "max-autotune-no-cudagraphs"])
def test_a_model_is_equal_to_eager_and_has_a_choice(mode, caplog):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3), torch.nn.BatchNorm2d(16), torch.nn.ReLU(), torch.nn.Flatten()
    )
    model.eval()
    run = torch.compile(model, backend="turbine_lite_cpu", mode=mode)
    x = torch.randn(4, 3, 40, 40)
    with torch.no_grad(), caplog.at_level(logging.INFO, "turbine_lite"):
        for _ in range(2):
            assert_same(run(x), model(x))
        model[0].weight.mul_(2)
        assert_same(run(x), model(x))
    assert len(_choices()) == 1
    chose = [message for message in caplog.messages if message.startswith("max-autotune chose")]
    assert len(chose) == 1
    for name in ("extern=auto local-sync", "extern=none local-sync", "kernels alone", "eager"):
        assert name in chose[0]


def test_versions_that_lost_are_freed(monkeypatch):
    monkeypatch.setattr(tuned, "_time", lambda version, args, calls: 1.0 if version.name == "eager" else 2.0)
    layer, calls = torch.nn.Linear(8, 8), torch.zeros(1)

    def counted(x):
        calls.add_(1)  # what is written needs a wrapper of AOTAutograd's, which keeps attributes of what it wraps
        return layer(x).tanh() * calls

    before = _executables()
    with torch.no_grad():
        _tuned(counted)(torch.randn(5, 8))
    assert _choices() == ["tuned: eager"]
    assert _executables() <= before


def _executables():
    return sum(type(thing) is SpecializedExecutable for thing in gc.get_objects())


def test_training():
    torch.manual_seed(0)
    model, copy = (torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)) for _ in "ab")
    copy.load_state_dict(model.state_dict())
    run = _tuned(model)
    x = torch.randn(5, 8)
    for _ in range(2):
        run(x).square().sum().backward()
        copy(x).square().sum().backward()
    assert_same_gradients(model, copy)


def test_random_numbers_are_those_of_one_run():
    def function(x):
        return torch.nn.functional.dropout(x, 0.5) + torch.rand(4)

    run = _tuned(function)
    x = torch.ones(4)
    torch.manual_seed(3)
    want = [function(x) for _ in range(3)]
    torch.manual_seed(3)
    for expected in want:
        assert_same(run(x), expected)


def test_what_has_effects_runs_once_a_call():
    ran = []

    @torch.library.custom_op("turbine_lite_test::counted", mutates_args=())
    def counted(x: torch.Tensor) -> torch.Tensor:
        ran.append(1)
        return x + 1

    counted.register_fake(torch.empty_like)
    run = _tuned(lambda x: counted(x * 2) * 3)
    assert_same(run(torch.ones(3)), torch.full((3,), 9.0))
    assert len(ran) == 1
    assert not _choices()


def test_a_write_to_an_argument_happens_once():
    run = _tuned(lambda x: x.add_(1) * 2)
    x = torch.zeros(3)
    assert_same(run(x), torch.full((3,), 2.0))
    assert_same(x, torch.ones(3))


def test_an_index_out_of_range_is_eagers_error_and_no_choice():
    run = _tuned(lambda x, i: x[i] * 2)
    for _ in range(2):
        with pytest.raises(IndexError):
            run(torch.ones(3), torch.tensor([5]))
    assert not _choices()
    assert_same(run(torch.ones(3), torch.tensor([1])), torch.tensor([2.0]))


def test_verify_compiles_in_one_way():
    run = _tuned(lambda x: x.exp() * 2, verify=True)
    assert_same(run(torch.zeros(3)), torch.full((3,), 2.0))
    assert not _choices()


def test_the_users_own_choices_stay():
    ways = dict(autotune._ways(Options(extern="none", driver="local-sync", compile_flags=("--x",))))
    assert all(o.extern == "none" and o.driver == "local-sync" and o.compile_flags[-1] == "--x" for o in ways.values())


def test_a_compiler_in_this_process_gets_no_flags_that_it_refuses():
    run = _tuned(lambda x: x.exp() + 1, compiler="in-process")
    assert_same(run(torch.zeros(2)), torch.full((2,), 2.0))
    assert not any("small-tiles" in name for name, _ in autotune._ways(Options(compiler="in-process")))


def test_no_further_version_is_begun_when_the_time_is_up(monkeypatch):
    built = _built(monkeypatch)
    run = _tuned(lambda x: x.exp() + 1, autotune_seconds=1e-9)
    assert_same(run(torch.zeros(2)), torch.full((2,), 2.0))
    assert len(built) == 1


def _function(x):
    return (x.exp() + 1).sum(0) * 2


def _built(monkeypatch):
    """The options of what is built from now on."""
    built = []
    real = GraphBuild.__init__

    def count(self, gm, options, *args):
        built.append(options)
        real(self, gm, options, *args)

    monkeypatch.setattr(GraphBuild, "__init__", count)
    return built


def test_a_later_process_builds_what_was_chosen_alone(monkeypatch):
    x = torch.randn(4, 4)
    assert_same(_tuned(_function)(x), _function(x))
    (choice,) = _choices()
    built = _built(monkeypatch)
    _as_in_a_new_process()
    assert_same(_tuned(_function)(x), _function(x))
    assert _choices() == [choice]
    assert len(built) == (0 if choice == "tuned: eager" else 1)


def test_the_choice_of_eager_is_kept(monkeypatch):
    monkeypatch.setattr(tuned, "_time", lambda version, args, calls: 1e-3 if version.name == "eager" else 1.0)
    x = torch.randn(4, 4)
    _tuned(_function)(x)
    built = _built(monkeypatch)
    _as_in_a_new_process()
    assert_same(_tuned(_function)(x), _function(x))
    assert _choices() == ["tuned: eager"]
    assert not built


def test_other_shapes_options_and_threads_are_other_choices(monkeypatch):
    gm = make_fx(_function, tracing_mode="fake")(torch.randn(4, 4))
    key = decisions.decision_key(gm, Options(), "inference")
    assert key == decisions.decision_key(
        make_fx(_function, tracing_mode="fake")(torch.randn(4, 4)), Options(), "inference"
    )
    others = {
        decisions.decision_key(make_fx(_function, tracing_mode="fake")(torch.randn(4, 5)), Options(), "inference"),
        decisions.decision_key(gm, Options(driver="local-sync"), "inference"),
        decisions.decision_key(gm, Options(disabled_ops=("aten.exp",)), "inference"),
        decisions.decision_key(gm, Options(), "forward"),
    }
    monkeypatch.setattr(torch, "get_num_threads", lambda: 77)
    others.add(decisions.decision_key(gm, Options(), "inference"))
    assert len(others - {key}) == 5
    monkeypatch.undo()
    assert key == decisions.decision_key(gm, Options(dump_dir="somewhere"), "inference")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 3}', '{"version": "gone"}', "\0"])
def test_a_damaged_decision_is_made_again(text, tmp_path):
    x = torch.randn(4, 4)
    _tuned(_function)(x)
    (path,) = (tmp_path / "cache" / "tuning").iterdir()
    path.write_text(text)
    _as_in_a_new_process()
    assert_same(_tuned(_function)(x), _function(x))
    assert len(_choices()) == 1
    assert json.loads(path.read_text())["seconds"]


def test_a_cache_that_cannot_be_written_costs_a_warning(tmp_path, caplog):
    (tmp_path / "cache").write_text("a file")
    x = torch.randn(4, 4)
    assert_same(_tuned(_function)(x), _function(x))
    assert any("cannot keep the choice" in message for message in caplog.messages)


def test_nothing_is_left_of_a_write_that_fails(tmp_path, monkeypatch):
    def full(source, target):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    decisions.keep_decision("k", "eager", {})
    assert not list((tmp_path / "cache" / "tuning").iterdir())
