"""One thread or all: the faster runs a program of middling size."""

from __future__ import annotations

import pytest
import torch

from tests.helpers import assert_same, compiled
from turbine_lite.runtime import trial
from turbine_lite.runtime.trial import DriverTrial


@pytest.fixture
def trials(monkeypatch):
    made = []
    init = DriverTrial.__init__
    monkeypatch.setattr(DriverTrial, "__init__", lambda self, *args: (made.append(self), init(self, *args))[1])
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    return made


class _Clock:
    """Says that each call took what the driver in turn is told to take."""

    def __init__(self, **seconds):
        self.seconds = list(seconds.values())
        self.now = 0.0
        self.readings = 0

    def perf_counter(self):
        turn, reading = divmod(self.readings, 7)  # the first call of a turn is not timed to its end
        self.readings += 1
        if reading and reading % 2 == 0:
            self.now += self.seconds[turn % 2]
        return self.now


@pytest.mark.parametrize(
    ("clock", "driver"),
    [
        (_Clock(sync=1.0, task=0.6), "local-task"),
        (_Clock(sync=1.0, task=0.95), "local-sync"),
        (_Clock(sync=1.0, task=2.0), "local-sync"),
    ],
    ids=["threads", "not worth it", "one"],
)
def test_the_faster_stays(trials, monkeypatch, clock, driver):
    monkeypatch.setattr(trial, "time", clock)
    model, x = torch.nn.Linear(256, 256), torch.randn(64, 256)
    run = compiled(model)
    with torch.no_grad():
        for _ in range(20):
            assert_same(run(x), model(x))
            assert len(trials) == 1
        model.weight.mul_(2)
        assert_same(run(x), model(x))
    assert trials[0].driver == driver
    assert len(trials[0]._rivals) == 1


@pytest.mark.parametrize(("size", "made"), [(8, 0), (512, 1)])
def test_small_programs_run_on_one_thread(trials, size, made):
    x = torch.randn(size, size)
    assert_same(compiled(lambda x: x @ x)(x), x @ x, rtol=1e-3, atol=1e-3)
    assert len(trials) == made


def test_an_index_out_of_range_during_a_trial(trials):
    table = torch.randn(4096, 512)
    run = compiled(lambda table, i: table[i].exp())
    run(table, torch.zeros(4096, dtype=torch.int64))
    with pytest.raises(IndexError):
        run(table, torch.full((4096,), 5000))
    assert len(trials) == 1
