from __future__ import annotations

import threading
import time

import pytest

from turbine_lite.diagnostics.timeline import Timeline


def test_calls_inside_each_other():
    timeline = Timeline()
    inner = timeline.wrap(lambda seconds: time.sleep(seconds) or seconds, "inner", "i")

    def outer(**kwargs):
        time.sleep(0.02)
        return inner(0.03) + inner(kwargs["more"])

    results = []
    event = timeline.record(lambda: results.append(timeline.wrap(outer, "outer", "o")(more=0.01)))
    assert results == [0.04]
    assert [(found.kind, found.name) for found in event.walk()] == [
        ("call", ""),
        ("outer", "o"),
        ("inner", "i"),
        ("inner", "i"),
    ]
    (child,) = event.children
    assert child.parent is event
    assert child.seconds >= 0.06
    assert 0.02 <= child.own_seconds <= child.seconds - 0.04
    assert event.start <= child.start <= child.children[0].start <= child.end <= event.end


def test_nothing_is_recorded_while_it_is_off():
    timeline = Timeline()
    double = timeline.wrap(lambda x: 2 * x, "k", "n")
    event = timeline.record(lambda: None)
    assert double(4) == 8
    assert event.children == []


def test_other_threads_are_not_recorded():
    timeline = Timeline()
    double = timeline.wrap(lambda x: 2 * x, "k", "n")

    def call():
        thread = threading.Thread(target=double, args=(1,))
        thread.start()
        thread.join()

    assert timeline.record(call).children == []


def test_an_error_ends_what_it_passes():
    timeline = Timeline()

    def fail():
        raise ValueError("no")

    failing = timeline.wrap(fail, "k", "n")

    def call():
        with pytest.raises(ValueError, match="no"):
            failing()
        timeline.wrap(lambda: None, "k", "after")()

    event = timeline.record(call)
    assert [child.name for child in event.children] == ["n", "after"]
    assert all(child.parent is event and child.end >= child.start for child in event.children)
