"""A region that is much slower in IREE is left to eager: by measurement, on the first call."""

from __future__ import annotations

import logging
import threading
import time

import pytest
import torch
from torch._dynamo.utils import counters

from tests.helpers import assert_same
from turbine_lite.graph.signature import Signature
from turbine_lite.runtime import eager_trial
from turbine_lite.runtime.eager_trial import EagerTrial

LEFT = "regions left to eager"


_MUCH_SLOWER = eager_trial._MUCH_SLOWER


@pytest.fixture(autouse=True)
def _as_for_users(monkeypatch):
    monkeypatch.setattr(eager_trial, "_MUCH_SLOWER", _MUCH_SLOWER)


def _seconds(monkeypatch, iree, eager):
    """Say that a call takes so long; the first call, which loads the program, takes long."""

    def least(run, args, before):
        run(args)
        return eager if getattr(run, "__func__", None) is EagerTrial._run_in_eager else iree

    choose = EagerTrial._choose
    monkeypatch.setattr(eager_trial, "_least_seconds", least)
    monkeypatch.setattr(EagerTrial, "_choose", lambda self, program, args, first: choose(self, program, args, 9.0))


def _program(x):
    return (x.exp() + 1).sum(0) * 2


def _run(function, **options):
    return torch.compile(function, backend="turbine_lite_cpu", options=options)


@pytest.mark.parametrize(
    ("iree", "eager", "left"),
    [(250e-6, 100e-6, 1), (108e-3, 100e-3, 0), (100e-6, 250e-6, 0), (45e-6, 1e-6, 0), (60e-6, 1e-6, 1)],
    ids=["slower", "about as fast", "faster", "slower by little", "slower by enough"],
)
def test_the_faster_stays(monkeypatch, caplog, iree, eager, left):
    _seconds(monkeypatch, iree, eager)
    run, x = _run(_program), torch.randn(4, 5)
    with caplog.at_level(logging.INFO, "turbine_lite"):
        for _ in range(3):
            assert_same(run(x), _program(x))
    assert counters["turbine_lite"][LEFT] == left
    assert sum(message.startswith("left to eager") for message in caplog.messages) == left


def test_beside_eager_parts_less_is_enough(monkeypatch):
    _seconds(monkeypatch, 45e-6, 1e-6)

    def function(x):
        return torch.special.airy_ai((x.exp() + 1) * 2).sum(0)

    run, x = _run(function), torch.randn(4, 5)
    for _ in range(2):
        assert_same(run(x), function(x))
    assert counters["turbine_lite"][LEFT] == 1


@pytest.mark.parametrize("options", [{"extern": "none"}, {"extern": "all"}, {"verify": True}])
def test_who_asks_for_iree_gets_it(monkeypatch, options):
    _seconds(monkeypatch, 250e-6, 100e-6)
    run, x = _run(_program, **options), torch.randn(4, 5)
    assert_same(run(x), _program(x))
    assert not counters["turbine_lite"][LEFT]


@pytest.mark.parametrize(("iree", "left"), [(900e-6, 0), (1200e-6, 1)])
def test_of_dynamic_sizes_little_is_said_by_small_ones(monkeypatch, iree, left):
    _seconds(monkeypatch, iree, 100e-6)
    run = torch.compile(_program, backend="turbine_lite_cpu", dynamic=True)
    x = torch.randn(4, 5)
    for _ in range(2):
        assert_same(run(x), _program(x))
    assert counters["turbine_lite"][LEFT] == left


def test_training_and_changed_weights(monkeypatch):
    _seconds(monkeypatch, 250e-6, 100e-6)
    torch.manual_seed(0)
    model, twin = (torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2)) for _ in "ab")
    twin.load_state_dict(model.state_dict())
    run, x = _run(model), torch.randn(3, 6)
    for _ in range(3):
        for call, module in ((run, model), (twin, twin)):
            call(x).square().sum().backward()
            torch.optim.SGD(module.parameters(), 0.1).step()
    for ours, want in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours, want)
    with torch.no_grad():
        assert_same(run(x), twin(x))
        model[0].weight.mul_(2)
        twin[0].weight.mul_(2)
        assert_same(run(x), twin(x))


def test_an_error_of_the_first_call_decides_nothing(monkeypatch):
    _seconds(monkeypatch, 250e-6, 100e-6)
    run = _run(lambda x, i: (x[i] * 2 + 1).exp())
    for _ in range(2):
        with pytest.raises(IndexError):
            run(torch.ones(3), torch.tensor([7]))
    assert not counters["turbine_lite"][LEFT]
    assert_same(run(torch.zeros(3), torch.tensor([1])), torch.tensor([1.0]).exp())
    assert counters["turbine_lite"][LEFT] == 1
    with pytest.raises(IndexError):
        run(torch.ones(3), torch.tensor([7]))


def test_what_eager_cannot_run_stays():
    def fail(*args):
        raise NotImplementedError("no kernel")

    class Program:
        signature = Signature((), (), (), "")

        def run(self, args):
            return [sum(args)]

    trial = EagerTrial(Program(), fail, False, lambda iree, eager: pytest.fail("left to eager"))
    for _ in range(2):
        assert trial.run((1, 2)) == [3]


def test_a_long_call_is_not_made_often(monkeypatch):
    calls = []
    monkeypatch.setattr(eager_trial, "_SECONDS", 0.01)

    def way(name, seconds):
        def run(args):
            calls.append(name)
            time.sleep(seconds)
            return [name]

        return run

    class Program:
        signature = Signature((), (), (), "")

        def __init__(self, seconds):
            self.run = way("iree", seconds)

    fast = EagerTrial(Program(0.02), lambda *args: way("eager", 0.02)(args), False, lambda iree, eager: None)
    assert fast.run(()) == ["iree"]
    assert calls == ["iree", "eager"]
    calls.clear()
    slow = EagerTrial(Program(0.2), lambda *args: way("eager", 0.02)(args), False, lambda iree, eager: None)
    assert slow.run(()) == ["eager"]
    assert calls == ["iree", "eager", "iree", "eager"]


def test_threads_decide_once():
    class Slow:
        signature = Signature((), (), (), "")
        calls = 0

        def run(self, args):
            self.calls += 1
            time.sleep(0.02)
            return args

    program, left, results = Slow(), [], []
    trial = EagerTrial(program, lambda *args: args, False, lambda iree, eager: left.append((iree, eager)))
    threads = [threading.Thread(target=lambda: results.append(trial.run((1, 2)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [(1, 2)] * 4
    ((iree, eager),) = left
    assert eager < 0.02 <= iree
    calls = program.calls
    assert trial.run((3,)) == (3,)
    assert program.calls == calls
    assert trial.program is None  # its memory is free


def test_a_slow_operator_is_found_by_the_clock():
    """No table knows it, and nothing is pretended: IREE takes 20x of eager's time and more."""
    model = torch.nn.EmbeddingBag(2000, 32, mode="sum")
    bags = torch.randint(0, 2000, (256, 8))
    run = _run(model)
    with torch.no_grad():
        for _ in range(2):
            assert_same(run(bags), model(bags))
    assert counters["turbine_lite"][LEFT] == 1
