"""Large arguments that a graph writes a part of."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.utils import counters

from tests.helpers import assert_same
from turbine_lite.graph.extern.in_place import WRITTEN, write_in_place

_CALLS = 3


def _cache(*sizes):
    return torch.linspace(-1, 1, torch.Size(sizes).numel()).reshape(sizes)


def _check(function, cache, *args, in_place=True, **options):
    """Compare some calls with eager's, results and what is in the cache, and say whether it was written in place."""
    torch._dynamo.reset()
    counters.clear()
    run = torch.compile(function, backend="turbine_lite_cpu", options=options or None, dynamic=False)
    mine, want = cache.clone(), cache.clone()
    kept = []
    with torch.no_grad():
        for _ in range(_CALLS):
            address = mine.data_ptr()
            got, expected = run(mine, *args), function(want, *args)
            assert_same(got, expected)
            assert_same(mine, want)
            assert mine.data_ptr() == address
            kept.append((got, expected))
    for got, expected in kept:  # later calls have not changed what earlier ones returned
        assert_same(got, expected)
    found = {name.split()[1] for name in counters["turbine_lite"] if name.endswith(": in-place")}
    assert in_place is None or bool(found) == in_place, found


def _copy(cache, new, at):
    cache.index_copy_(2, at, new * 2)
    return torch.softmax(cache * 3, -1) + 1


def _put(cache, new, at):
    cache[:, :, at] = new.tanh()
    return (cache * cache).sum(-1).sqrt()


def _slice(cache, new, at):
    cache[:, :, 2:4] = new.exp()
    return cache.mean(-1).sin() * 2


def _scatter(cache, new, at):
    cache.scatter_(2, torch.zeros(1, 8, 1, 64, dtype=torch.int64) + 5, new[:, :, :1] + 1)
    return cache.cos().mean(-1) * 4


@pytest.mark.parametrize("write", [_copy, _put, _slice, _scatter])
def test_a_part_is_written_in_place(write):
    _check(write, _cache(1, 8, 512, 64), torch.randn(1, 8, 2, 64), torch.tensor([7, 300]))

    def step(caches, x, at):
        for cache in caches:
            cache.index_copy_(1, at, x.unsqueeze(1) + 1)
            x = torch.tanh(cache.mean(1) + x) * 2
        return x

    stacked = _cache(2, 4, 300, 64)

    def both(caches, x, at):
        return step(list(caches.unbind()), x, at)

    _check(both, stacked, torch.randn(4, 64), torch.tensor([11]), in_place=False)  # views of one tensor

    counters.clear()
    run = torch.compile(step, backend="turbine_lite_cpu", dynamic=False)
    mine, want = [[cache.clone() for cache in stacked] for _ in range(2)]
    with torch.no_grad():
        for at in (torch.tensor([11]), torch.tensor([12])):
            x = torch.randn(4, 64)
            assert_same(run(mine, x, at), step(want, x, at))
            assert_same(mine, want)
    assert counters["turbine_lite"]["eager aten.index_put_.default: in-place"] == 2


def test_what_was_read_before_is_as_it_was():
    def function(cache, new, at):
        before = cache.sum(-1) * 2
        cache.index_copy_(2, at, new)
        return before + cache.mean(-1)

    _check(function, _cache(1, 8, 512, 64), torch.randn(1, 8, 1, 64), torch.tensor([7]), in_place=False)


def test_a_slice_gets_numbers_and_other_types():
    def function(cache, new, at):
        cache[:, :, 1:9:2] = new  # cast, and repeated
        return cache.mean(-1).sin() * 2

    _check(function, _cache(1, 8, 512, 64), torch.randn(4, 64, dtype=torch.float64), None)
    _check(function, _cache(1, 8, 512, 64), torch.randn(8, 1, 1), None)

    def filled(cache, new, at):
        cache[:, :, 3:] = 0.25
        return cache.mean(-1).sin() * 2

    _check(filled, _cache(1, 8, 512, 64), None, None, in_place=None)


def test_a_slice_that_is_cast_beside_a_reader_of_the_old_values():
    def function(cache, new, at):
        before = cache.mean(-1)
        cache[:, :, 1:9:2] = new
        return cache.mean(-1).sin() * 2 + before

    _check(function, _cache(1, 8, 512, 64), torch.randn(4, 64, dtype=torch.float64), None, in_place=False)


def test_what_depends_on_the_old_values():
    def function(cache, new, at):
        cache[:, :, at] = cache[:, :, at] * 0.5 + new
        return cache.mean(-1).sin()

    _check(function, _cache(1, 8, 512, 64), torch.randn(1, 8, 1, 64), torch.tensor([7]), in_place=False)


def test_what_is_added_twice_is_not():
    def function(cache, new, at):
        cache.index_put_((torch.tensor([0]), torch.tensor([1]), at), new[0, 0, 0, :1], accumulate=True)
        return (cache * 2).exp().mean(-1)

    _check(function, _cache(1, 8, 512, 64), torch.randn(1, 8, 1, 64), torch.tensor([7]), in_place=False)


def test_a_result_that_is_no_alias_stays_none():
    def function(cache, new, at):
        written = torch.index_copy(cache, 2, at, new)
        cache.copy_(written)
        return written, written.transpose(0, 1), written.sin() * 2

    _check(function, _cache(1, 8, 512, 64), torch.randn(1, 8, 1, 64), torch.tensor([7]), in_place=False)


@pytest.mark.parametrize(
    ("results", "in_place"),
    [
        (lambda graph, write: [write], True),
        (lambda graph, write: [write, graph.call_function(torch.ops.aten.sin.default, (write,))], True),
        (lambda graph, write: [write, write], False),  # as common subexpressions may become
        (lambda graph, write: [write, graph.call_function(torch.ops.aten.t.default, (write,))], False),
        (
            lambda graph, write: [
                write,
                graph.call_function(
                    torch.ops.aten.slice.Tensor, (graph.call_function(torch.ops.aten.t.default, (write,)), 0, 0, 2)
                ),
            ],
            False,
        ),
    ],
    ids=["alone", "read", "twice", "its view", "a view of its view"],
)
def test_memory_that_the_caller_gets_is_not_the_arguments(results, in_place):
    graph = torch.fx.Graph()
    cache, at, new = (graph.placeholder(name) for name in ("cache", "at", "new"))
    write = graph.call_function(torch.ops.aten.index_copy.default, (cache, 0, at, new))
    cache.meta = {"val": torch.empty(512, 512), WRITTEN: 0}
    write.meta["val"] = torch.empty(512, 512)
    graph.output(tuple(results(graph, write)))
    assert write_in_place(graph) is in_place
    assert (write.target is torch.ops.aten.index_copy_.default) is in_place


def test_a_result_that_is_an_alias_stays_one():
    def function(cache, new, at):
        cache.index_copy_(2, at, new)
        return cache, cache[0], (cache * 2).sin()

    cache = _cache(1, 8, 512, 64)
    with torch.no_grad():
        same, part, _ = torch.compile(function, backend="turbine_lite_cpu")(
            cache, torch.randn(1, 8, 1, 64), torch.tensor([7])
        )
    assert same is cache
    assert part.data_ptr() == cache.data_ptr()


def test_max_autotune_runs_versions_on_the_same_arguments(tmp_path, monkeypatch):
    """What is written depends on no old value, so that it may be written once more; unless it is drawn at random."""
    monkeypatch.setenv("TURBINE_LITE_CACHE_DIR", str(tmp_path))
    arguments = (torch.randn(1, 8, 2, 64), torch.tensor([7, 3]))
    for extern in ("auto", "none"):
        options = {"autotune": True, "extern": extern}
        _check(_copy, _cache(1, 8, 512, 64), *arguments, in_place=None, **options)

    def draw(cache, at):
        cache.index_copy_(1, torch.randperm(512)[:1], torch.ones(8, 1, 64))
        return (cache.exp() * 2 + at).sum()

    with torch.no_grad():
        cache = torch.zeros(8, 512, 64)
        run = torch.compile(draw, backend="turbine_lite_cpu", options={"autotune": True})
        for call in range(1, 4):
            run(cache, torch.ones(1))
            assert int((cache.sum((0, 2)) > 0).sum()) <= call


def test_in_place_versions_of_max_autotune_are_timed(monkeypatch, tmp_path):
    monkeypatch.setenv("TURBINE_LITE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("turbine_lite.runtime.tuned._time", lambda version, args, calls: 1.0)  # the first one stays
    _check(_copy, _cache(1, 8, 512, 64), torch.randn(1, 8, 2, 64), torch.tensor([7, 3]), autotune=True)


def test_small_ones_and_others_modes_stay():
    arguments = (torch.randn(1, 8, 2, 64), torch.tensor([7, 3]))
    _check(_copy, _cache(1, 8, 16, 64), *arguments, in_place=False)
    _check(_copy, _cache(1, 8, 512, 64), *arguments, in_place=False, extern="none")
    _check(_copy, _cache(1, 8, 512, 64), *arguments, in_place=False, verify="error")


def test_a_buffer_of_a_module():
    class Cached(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(64, 64)
            self.register_buffer("cache", torch.zeros(8, 512, 64))

        def forward(self, x, at):
            self.cache.index_copy_(1, at, self.linear(x))
            return torch.softmax(self.cache.sum(1) * 2, -1)

    torch.manual_seed(0)
    mine, want = Cached(), Cached()
    want.load_state_dict(mine.state_dict())
    run = torch.compile(mine, backend="turbine_lite_cpu")
    with torch.no_grad():
        for step in range(4):
            x, at = torch.randn(8, 1, 64), torch.tensor([step])
            assert_same(run(x, at), want(x, at))
            assert torch.allclose(mine.cache, want.cache, atol=1e-5)


def test_an_index_out_of_range_is_eagers_error():
    cache = _cache(1, 8, 512, 64)
    run = torch.compile(_copy, backend="turbine_lite_cpu", dynamic=False)
    with torch.no_grad():
        run(cache, torch.randn(1, 8, 1, 64), torch.tensor([7]))
        with pytest.raises(IndexError):
            run(cache, torch.randn(1, 8, 1, 64), torch.tensor([512]))


def test_channels_last_and_strided_arguments():
    def function(image, new):
        image[:, :, 4:8] = new.exp()
        return image.mean(1).sin() * 2

    image = _cache(2, 8, 64, 128).to(memory_format=torch.channels_last)
    _check(function, image, torch.randn(2, 8, 4, 128))
    _check(function, _cache(2, 64, 8, 128).transpose(1, 2), torch.randn(2, 8, 4, 128))
