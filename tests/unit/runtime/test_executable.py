from __future__ import annotations

import gc
import subprocess
import sys
import threading

import pytest
import torch

from tests.helpers import assert_same, compiled
from turbine_lite.runtime import executable
from turbine_lite.runtime.staging import Staged

N = 40
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def misaligned(tensor: torch.Tensor) -> torch.Tensor:
    """The same values at an address that is no multiple of 64."""
    memory = torch.empty(tensor.numel() + 1, dtype=tensor.dtype)
    view = memory[1:].view(tensor.shape)
    view.copy_(tensor)
    assert view.data_ptr() % 64
    return view


INDEX = torch.tensor([3, 0, 3, 7])

OPERATORS = {
    "index_put": lambda x: x.index_put((INDEX,), torch.ones(4, N)),
    "index_put_accumulate": lambda x: x.index_put((INDEX,), torch.ones(4, N), accumulate=True),
    "scatter": lambda x: x.scatter(0, INDEX[None, :].expand(1, 4), 5.0),
    "scatter_add": lambda x: x.scatter_add(0, INDEX[None, :].expand(1, 4), torch.ones(1, 4)),
    "slice_scatter": lambda x: x.slice_scatter(torch.zeros(3, N), 0, 2, 5),
    "select_scatter": lambda x: x.select_scatter(torch.zeros(N), 0, 2),
    "sort": lambda x: x.sort(0),
    "clone": lambda x: x.clone(),
    "identity": lambda x: (x + 0, x * 1),
    "view": lambda x: x.view(-1),
    "transpose": lambda x: x.t(),
    "transpose_of_result": lambda x: x.exp().t(),
    "addmm_in_place_of_its_bias": lambda x: torch.addmm(x[:, :10], torch.ones(N, 3), torch.ones(3, 10)),
    "twice_the_same": lambda x: (x.exp(), x.exp()),
    "cat": lambda x: torch.cat([x, x]),
    "where": lambda x: torch.where(x > 0, x, x),
}


def memory_of(tensors):
    return [t.untyped_storage().data_ptr() for t in tensors]


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("name", OPERATORS)
def test_inputs_are_not_written_and_results_share_memory_as_in_eager(name, aligned):
    function = OPERATORS[name]
    torch.manual_seed(0)
    original = torch.randn(N, N)
    x = original.clone() if aligned else misaligned(original)
    want = function(x.clone())
    got = torch.compile(function, backend="turbine_lite_cpu", fullgraph=True)(x)
    assert torch.equal(x, original), "the input was written"
    assert_same(got, want)
    got = [got] if isinstance(got, torch.Tensor) else list(got)
    eager = function(x)
    eager = [eager] if isinstance(eager, torch.Tensor) else list(eager)
    sharing = [m == x.untyped_storage().data_ptr() for m in memory_of(got)]
    assert sharing == [m == x.untyped_storage().data_ptr() for m in memory_of(eager)]
    assert len(set(memory_of(got))) == len(set(memory_of(eager))), "results share memory where eager's do not"


@pytest.fixture
def staged(monkeypatch):
    """Tensors that move are copied from the second call on; the number of copied calls."""
    monkeypatch.setattr(executable, "_MOVES", 1)
    puts, put = [], Staged.put
    monkeypatch.setattr(Staged, "put", lambda self, args: (puts.append(len(args)), put(self, args)))
    return puts


@pytest.mark.parametrize("name", OPERATORS)
def test_small_tensors_that_move(name, staged):
    function = OPERATORS[name]
    options = {"extern": "none"}  # no trial against eager
    compiled_function = torch.compile(function, backend="turbine_lite_cpu", fullgraph=True, options=options)
    kept = []
    for step in range(5):
        x = torch.randn(N, N, generator=torch.Generator().manual_seed(step))
        x = misaligned(x) if step % 2 else x
        kept.append((compiled_function(x), x))
    for step, (got, x) in enumerate(kept):
        original = torch.randn(N, N, generator=torch.Generator().manual_seed(step))
        assert torch.equal(x, original), "the input was written"
        assert_same(got, function(original))
    assert len(staged) == (0 if name in ("view", "transpose", "sort") else 4)


def test_large_tensors_that_move_are_not_copied(staged):
    function = compiled(lambda x: x * 3)
    kept = [(function(x), x) for x in (torch.full((200, 200), float(step)) for step in range(5))]
    for got, x in kept:
        assert_same(got, x * 3)
    assert staged == []


def test_what_moves_and_is_not_as_the_program_wants_it(staged):
    function = compiled(lambda x, i: (x * 2 + x.t(), x[i]))
    kept = []
    for step in range(6):
        x, i = torch.randn(5, 5), torch.tensor([step - 1, 0])
        kept.append((function(x, i), x, i))
    for got, x, i in kept:
        assert_same(got, (x * 2 + x.t(), x[i]))
    assert staged
    with pytest.raises(IndexError, match=r"out of (range|bounds)"):
        function(torch.randn(5, 5), torch.tensor([1, 7]))


def test_results_are_ordinary_tensors_that_outlive_everything():
    function = compiled(lambda x: x * 2)
    kept = [function(torch.full((64, 64), float(i))) for i in range(5)]
    kept[0].add_(1)
    del function
    torch._dynamo.reset()
    gc.collect()
    assert [float(t[0, 0]) for t in kept] == [1.0, 2.0, 4.0, 6.0, 8.0]


@pytest.mark.parametrize(
    "x",
    [
        torch.randn(6, 4).t(),
        torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
        torch.randn(5, 6)[:, ::2],
        torch.randn(4).expand(3, 4),
        torch.randn(()),
        torch.randn(0, 3),
        torch.randn(2, 0, 3),
        torch.randn(1, 1, 3),
    ],
    ids=lambda x: f"{tuple(x.shape)}/{x.stride()}",
)
def test_any_strides(x):
    assert_same(compiled(lambda x: x * 2 + 1)(x), x * 2 + 1)


@pytest.mark.parametrize(
    "dtype",
    [
        getattr(torch, name)
        for name in ["bool", "int8", "uint8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]
    ],
)
def test_native_dtypes(dtype):
    x = torch.tensor([0, 1, 2, 3, 100]).to(dtype)
    assert_same(compiled(lambda x: torch.where(x > 1, x, x.flip(0)))(x), torch.where(x > 1, x, x.flip(0)))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_other_dtypes_fall_back(dtype):
    x = torch.tensor([0, 1, 2, 3, 200]).to(dtype)
    got = torch.compile(lambda x: (x.clone(), x.flip(0)), backend="turbine_lite_cpu")(x)
    assert_same(got, (x.clone(), x.flip(0)))


def test_negative_bit():
    x = torch.randn(4, dtype=torch.complex64).conj().imag
    assert x.is_neg()
    got = torch.compile(lambda x: x + 1, backend="turbine_lite_cpu")(x)
    assert_same(got, x + 1)


def test_float64_stays_float64():
    x = torch.tensor([1.0, 1e-300, 1e300], dtype=torch.float64)
    assert_same(compiled(lambda x: x / 3 + 1e-12)(x), x / 3 + 1e-12, rtol=1e-15, atol=0)


@pytest.mark.parametrize("moves", [executable._MOVES, 1])
def test_threads_call_one_executable(moves, monkeypatch):
    monkeypatch.setattr(executable, "_MOVES", moves)
    function = compiled(lambda x: torch.tanh(x @ x))
    function(torch.randn(32, 32))
    failures = []

    def work(seed):
        for step in range(20):
            x = torch.randn(32, 32, generator=torch.Generator().manual_seed(100 * seed + step))
            try:
                assert_same(function(x), torch.tanh(x @ x), rtol=1e-3, atol=1e-4)
            except BaseException as error:
                failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


MEMORY = """
import resource, torch
options = {"fallback": "error", "extern": "none"}
f = torch.compile(lambda x: (x * 2 + 1).tanh(), backend="turbine_lite_cpu", options=options, dynamic=True)
f(torch.ones(8, 1024)); f(torch.ones(16, 1024))
x = torch.randn(64 * 1024, 1024)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
# The generator's temporaries are gone; touch the input's pages, not more.
before = peak(); y = f(x); grown = peak() - before
assert x.nbytes == y.nbytes == 256 << 20
print(grown, bool(torch.allclose(y[-1], (x[-1] * 2 + 1).tanh(), atol=1e-5)))
"""


def test_marshalling_adds_no_copies():
    """256 MiB in, 256 MiB out: the process grows by the output, and a little."""
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    grown, right = done.stdout.split()
    assert right == "True"
    assert float(grown) < 256 + 16


class _Doubled(torch.utils.data.Dataset):
    def __init__(self, function):
        self.function = function

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return self.function(torch.full((4,), float(index)))


@pytest.mark.parametrize("moves", [executable._MOVES, 1])
@pytest.mark.parametrize("driver", ["local-sync", "local-task"])
def test_data_loader_workers_call_what_the_parent_compiled(driver, moves, monkeypatch):
    monkeypatch.setattr(executable, "_MOVES", moves)
    function = compiled(lambda x: x * 2, driver=driver)
    _ = [function(x) for x in [torch.ones(4), torch.ones(4), torch.ones(4)]]
    loader = torch.utils.data.DataLoader(_Doubled(function), num_workers=2, multiprocessing_context="fork")
    assert [float(batch[0, 0]) for batch in loader] == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    assert_same(function(torch.ones(4)), torch.full((4,), 2.0))


def test_a_runtime_error_falls_back_once_and_for_all(monkeypatch, caplog):
    function = torch.compile(lambda x: x * 7, backend="turbine_lite_cpu")
    calls = []

    def failing(*args):
        calls.append(args)
        raise RuntimeError("planted")

    x = torch.ones(3)
    monkeypatch.setattr("turbine_lite.runtime.executable._empty_strided_cpu", failing)
    for _ in range(3):
        assert_same(function(x), x * 7)
    assert len(calls) == 1
    assert sum("planted" in record.getMessage() for record in caplog.records) == 1
