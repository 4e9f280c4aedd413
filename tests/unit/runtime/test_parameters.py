"""Programs that are loaded with parameters never run with values of yesterday."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest
import torch
from torch import nn

from tests.helpers import assert_same
from turbine_lite.runtime import executable
from turbine_lite.runtime.parameters import ParameterSets


class _Model(nn.Module):
    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.first = nn.Linear(16, width)
        self.norm = nn.BatchNorm1d(width)
        self.last = nn.Linear(width, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.norm(self.first(x)).relu())


X = torch.randn(5, 16, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def loads(monkeypatch):
    """The number of times that a program was loaded with parameters."""
    counts = []
    put = ParameterSets.put
    monkeypatch.setattr(ParameterSets, "put", lambda self, *args: (counts.append(1), put(self, *args))[1])
    return counts


@pytest.fixture
def compilations(monkeypatch):
    counts = []
    init = executable.SpecializedExecutable.__init__
    monkeypatch.setattr(
        executable.SpecializedExecutable, "__init__", lambda self, *a, **k: (counts.append(1), init(self, *a, **k))[1]
    )
    return counts


def _compiled(module, **options):
    return torch.compile(module, backend="turbine_lite_cpu", options={"fallback": "error", **options})


def _check(run, module, x=X):
    with torch.no_grad():
        assert_same(run(x), module(x), rtol=1e-4, atol=1e-5)


def _optimizer_step(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(X).square().sum().backward()
    optimizer.step()
    model.zero_grad()


def _lora(model):
    with torch.no_grad():
        model.first.weight.addmm_(torch.randn(24, 2), torch.randn(2, 16))


def _average(model):
    for parameter in model.parameters():
        parameter.data.mul_(0.9).add_(0.1)


def _rebind(model):
    model.first.weight.data = torch.randn(24, 16)


def _replace(model):
    model.first.weight = nn.Parameter(torch.randn(24, 16))


def _numpy(model):
    model.last.weight.detach().numpy()[:] = 0.25


def _statistics(model):
    model.train()
    model(3 * X + 1)
    model.eval()


def _one_element(model):
    model.first.weight.data[0, 0] += 5


def _swap(model):
    model.load_state_dict(
        {name: torch.rand_like(value) for name, value in model.state_dict().items() if value.dim()}, strict=False
    )


def _transposed(model):
    model.last.weight.data = torch.randn(24, 8).t()


CHANGES = {
    change.__name__: change
    for change in (
        _optimizer_step,
        _lora,
        _average,
        _rebind,
        _replace,
        _numpy,
        _one_element,
        _statistics,
        _swap,
        _transposed,
    )
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changes_are_seen_before_the_next_call(change, loads):
    torch.manual_seed(1)
    model = _Model().eval()
    run = _compiled(model)
    _check(run, model)
    _check(run, model)
    assert len(loads) == 1
    for _ in range(2):
        change(model)
        _check(run, model)
        _check(run, model)
    assert len(loads) >= 2


def test_what_changes_often_becomes_an_argument(compilations, loads):
    model = _Model().eval()
    run = _compiled(model)
    _check(run, model)
    for _ in range(12):
        with torch.no_grad():
            model.last.bias.add_(1)
        _check(run, model)
    assert len(compilations) == 2
    loaded = len(loads)
    for _ in range(3):
        with torch.no_grad():
            model.last.bias.add_(1)
        _check(run, model)
    assert len(loads) == loaded
    _optimizer_step(model)
    _check(run, model)
    assert len(loads) == loaded + 1  # the others are parameters still


def test_rare_changes_keep_the_program(compilations):
    model = _Model().eval()
    run = _compiled(model)
    for _ in range(8):
        _average(model)
        for _ in range(10):
            _check(run, model)
    assert len(compilations) == 1


def test_layers_of_one_program_keep_their_values(compilations, loads):
    layers = nn.Sequential(*(_Model() for _ in range(6))).eval()
    runs = [_compiled(layer) for layer in layers]
    for _ in range(5):
        for run, layer in zip(runs, layers, strict=True):
            _check(run, layer)
    assert (len(compilations), len(loads)) == (1, 6)


def test_two_modules_share_a_weight():
    first, second = _Model().eval(), _Model().eval()
    second.last = first.last
    runs = [(_compiled(model), model) for model in (first, second)]
    for _ in range(3):
        for run, model in runs:
            _check(run, model)
        with torch.no_grad():
            first.last.weight.add_(1)


def test_tied_weights():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(16, 8)
            self.head = nn.Linear(8, 16, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, ids):
            return self.head(self.embed(ids))

    model, ids = Tied().eval(), torch.arange(5)
    run = _compiled(model)
    for _ in range(3):
        _check(run, model, ids)
        with torch.no_grad():
            model.embed.weight.mul_(1.5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_dtypes(dtype):
    model = nn.Linear(16, 8).to(dtype)
    run, x = torch.compile(model, backend="turbine_lite_cpu"), X.to(dtype)
    for _ in range(2):
        with torch.no_grad():
            assert_same(run(x), model(x), rtol=2e-2, atol=2e-2)
            model.weight.add_(0.5)


def test_weights_that_are_parts_of_one_tensor():
    """Not aligned as IREE wants memory: then what it has is a copy."""
    flat = torch.randn(1 + 16 * 8 + 8)
    model = nn.Linear(16, 8)
    model.weight.data, model.bias.data = flat[1:129].view(8, 16), flat[129:]
    run = _compiled(model)
    for _ in range(3):
        _check(run, model)
        flat.mul_(2)


def test_not_a_number_is_not_a_change(loads):
    model = _Model().eval()
    with torch.no_grad():
        model.last.weight.fill_(float("nan"))
    run = _compiled(model)
    for _ in range(3):
        _check(run, model)
    assert len(loads) == 1


def test_inference_mode():
    model = _Model().eval()
    run = _compiled(model)
    with torch.inference_mode():
        assert_same(run(X), model(X), rtol=1e-4, atol=1e-5)
    _average(model)
    _check(run, model)


def test_weights_made_under_inference_mode():
    with torch.inference_mode():
        model = _Model().eval()
        run = _compiled(model)
        for _ in range(3):
            assert_same(run(X), model(X), rtol=1e-4, atol=1e-5)
            model.last.weight.mul_(2)


def test_nothing_keeps_the_weights_of_a_module_that_is_gone():
    model = _Model().eval()
    _check(_compiled(model), model)
    other = _Model().eval()
    _check(_compiled(other), other)  # the same program
    storage = weakref.ref(model.first.weight.untyped_storage())
    tensor = weakref.ref(model.first.weight)
    del model
    gc.collect()
    assert tensor() is None
    assert storage() is None
    _check(_compiled(other), other)


def test_threads():
    model = _Model().eval()
    run = _compiled(model)
    _check(run, model)
    errors = []

    def work():
        try:
            for _ in range(50):
                _check(run, model)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_dynamic_sizes(loads):
    model = _Model().eval()
    run = torch.compile(model, backend="turbine_lite_cpu", dynamic=True)
    for rows in (3, 7, 5):
        _check(run, model, torch.randn(rows, 16))
    assert len(loads) == 1


def test_a_number_of_unsupported_operators_between(loads):
    """Parameters of each region."""

    class Cut(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(16, 16), nn.Linear(16, 16)

        def forward(self, x):
            y = torch.special.airy_ai(self.a(x).relu())
            return self.b(y).relu()

    model = Cut().eval()
    run = torch.compile(model, backend="turbine_lite_cpu", options={"min_block_size": 1})
    for _ in range(2):
        _check(run, model)
        with torch.no_grad():
            model.b.weight.add_(1)
    assert len(loads) == 3  # a's once, b's twice


def test_results_are_never_the_parameters():
    class Leaks(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.randn(16, 8)), nn.Parameter(torch.randn(8))

        def forward(self, x):
            written = torch.zeros(8).index_put((torch.tensor([1, 2]),), self.bias[:2])
            return x @ self.weight + self.bias, self.weight.clone(), self.bias * 1, self.bias, written, self.weight.t()

    model = Leaks()
    run = _compiled(model)
    for _ in range(3):
        _check(run, model)
        with torch.no_grad():
            for result in run(X)[:3]:
                result.fill_(7)
        _check(run, model)
        with torch.no_grad():
            run(X)[3].mul_(2)  # this one is a parameter, as in eager


@pytest.mark.parametrize("width", [16, 4096])
def test_a_large_parameter_that_changes_as_a_whole(width):
    model = nn.Linear(width, 512)
    run, x = _compiled(model), torch.randn(3, width)
    for _ in range(2):
        _check(run, model, x)
        model.weight.data.mul_(0.5)


def test_the_switch(loads):
    model = _Model().eval()
    run = _compiled(model, pack_parameters=False)
    _check(run, model)
    _average(model)
    _check(run, model)
    assert not loads
