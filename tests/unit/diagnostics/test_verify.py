"""Verify mode finds wrong programs, names the operator, and keeps the user's results right."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

import turbine_lite
from tests.helpers import assert_same, compiled
from turbine_lite.diagnostics.compare import difference
from turbine_lite.diagnostics.snapshot import copy_arguments
from turbine_lite.graph import rewrites
from turbine_lite.graph.insertion import call_with_meta

aten = torch.ops.aten


@pytest.fixture
def wrong_tanh(monkeypatch):
    """The lowering of tanh computes sine."""

    def rewrite(graph, node):
        node.replace_all_uses_with(call_with_meta(graph, aten.sin.default, node.args, node))

    monkeypatch.setitem(rewrites._REWRITES, aten.tanh.default, rewrite)


@pytest.fixture
def wrong_product_of_sum(monkeypatch):
    """A product that is wrong only where one factor is a sum: no operator is wrong alone."""

    def rewrite(graph, node):
        if any(source.target is aten.add.Tensor for source in node.all_input_nodes):
            node.target = aten.sub.Tensor

    monkeypatch.setitem(rewrites._REWRITES, aten.mul.Tensor, rewrite)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x):
        x = torch.relu(self.first(x)) + 1
        x = torch.tanh(x)  # the wrong line
        return self.second(x).softmax(-1), x.exp() * x


def test_names_the_node_and_gives_eagers_result(wrong_tanh, caplog, tmp_path):
    model, x = Model(), torch.randn(3, 8)
    run = compiled(model, verify=True, dump_dir=str(tmp_path))
    with caplog.at_level(logging.WARNING, "turbine_lite"), torch.no_grad():
        for _ in range(3):
            assert_same(run(x), model(x), rtol=0, atol=0)
    (record,) = caplog.records
    text = record.getMessage()
    assert "node tanh (aten.tanh.default)" in text
    assert "# the wrong line" in text
    assert "elements differ, by up to" in text
    assert counters["turbine_lite"]["verified calls that differ"] == 1


def test_the_reproducer_runs_without_turbine_lite(wrong_tanh, tmp_path):
    run = compiled(Model(), verify="error", dump_dir=str(tmp_path))
    with pytest.raises(turbine_lite.VerificationError) as raised, torch.no_grad():
        run(torch.randn(3, 8))
    assert raised.value.nodes == ("tanh",)
    script = raised.value.reproducer
    assert script is not None
    text = Path(script).read_text()
    assert "turbine_lite" not in text.split("import subprocess")[1]
    printed = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True).stdout
    assert "result 0: largest difference from eager 0." in printed
    assert "equal: False" in printed


def test_the_reproducer_of_an_operator_on_parameters(monkeypatch, tmp_path):
    """The program is loaded with the weight there too."""

    def rewrite(graph, node):
        doubled = call_with_meta(graph, aten.mul.Tensor, (node.args[1], 2.0), node)
        node.replace_input_with(node.args[1], doubled)

    monkeypatch.setitem(rewrites._REWRITES, aten.mm.default, rewrite)

    class Product(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(8, 4))

        def forward(self, x):
            return x @ self.weight

    run = compiled(Product(), verify="error", dump_dir=str(tmp_path))
    with pytest.raises(turbine_lite.VerificationError) as raised, torch.no_grad():
        run(torch.randn(3, 8))
    script = raised.value.reproducer
    assert "flow.parameter" in Path(script).with_name("torch.mlir").read_text()
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "equal: False" in done.stdout


def test_a_fault_of_two_operators_together(wrong_product_of_sum):
    x = torch.randn(5)
    run = compiled(lambda x: ((x.exp() + x) * 3.0 * x).cos(), verify="error")
    with pytest.raises(turbine_lite.VerificationError) as raised:
        run(x)
    assert raised.value.nodes == ("add", "mul")


def test_in_the_backward_graph(monkeypatch, caplog):
    def rewrite(graph, node):
        node.replace_all_uses_with(call_with_meta(graph, aten.mul.Tensor, node.args, node))

    monkeypatch.setitem(rewrites._REWRITES, aten.div.Tensor, rewrite)
    x = (torch.rand(4) + 2).requires_grad_()
    with caplog.at_level(logging.WARNING, "turbine_lite"):
        compiled(lambda x: x.log(), verify=True)(x).sum().backward()
    assert torch.equal(x.grad, 1 / x.detach())
    assert "aten.div.Tensor" in caplog.text


def test_right_programs_pass(caplog):
    counters.clear()
    model, x = Model(), torch.randn(3, 8)
    run = compiled(model, verify="error", verify_every=2)
    with torch.no_grad():
        for _ in range(5):
            assert_same(run(x), model(x))
    assert counters["turbine_lite"]["verified calls"] == 3
    assert "verified calls that differ" not in counters["turbine_lite"]


def test_every_nth_call_is_compared(wrong_tanh, monkeypatch):
    # Right at first: the fault shows only for larger arguments.
    def rewrite(graph, node):
        node.replace_all_uses_with(call_with_meta(graph, aten.clamp.default, (*node.args, -0.5, 0.5), node))

    monkeypatch.setitem(rewrites._REWRITES, aten.tanh.default, rewrite)
    run = compiled(lambda x: torch.tanh(x), verify="error", verify_every=3)
    for _ in range(3):
        run(torch.zeros(4))
    with pytest.raises(turbine_lite.VerificationError, match="node tanh"):
        run(torch.ones(4))


def test_random_numbers_and_mutation_are_eagers(wrong_tanh):
    buffer = torch.zeros(4)

    def step(x):
        buffer.add_(torch.tanh(x))
        return nn.functional.dropout(x, 0.5), buffer * 2

    x = torch.randn(4)
    torch.manual_seed(0)
    want = [step(x) for _ in range(2)]
    after, state = buffer.clone(), torch.get_rng_state()
    buffer.zero_()
    torch.manual_seed(0)
    run = torch.compile(step, backend="turbine_lite_cpu", options={"verify": True})
    assert_same([run(x) for _ in range(2)], want)
    assert torch.equal(buffer, after)
    assert torch.equal(torch.get_rng_state(), state)


def test_from_the_environment(wrong_tanh, monkeypatch):
    monkeypatch.setenv("TURBINE_LITE_VERIFY", "error")
    with pytest.raises(turbine_lite.VerificationError):
        compiled(lambda x: torch.tanh(x))(torch.ones(3))
    torch._dynamo.reset()
    monkeypatch.setenv("TURBINE_LITE_VERIFY", "1")
    assert torch.equal(compiled(lambda x: torch.tanh(x))(torch.ones(3)), torch.ones(3).tanh())


def test_dynamic_shapes(wrong_tanh):
    run = torch.compile(
        lambda x: torch.tanh(x * x.shape[0]), backend="turbine_lite_cpu", dynamic=True, options={"verify": "error"}
    )
    with pytest.raises(turbine_lite.VerificationError, match="node tanh"):
        run(torch.ones(3, 5))


@pytest.mark.parametrize(
    ("got", "want", "text"),
    [
        (torch.ones(3), torch.ones(3, dtype=torch.float64), "dtype"),
        (torch.ones(3), torch.ones(4), "shape"),
        (torch.ones(3, 2).t(), torch.ones(2, 3), "strides"),
        (torch.tensor([1.0, float("nan")]), torch.tensor([1.0, 2.0]), "NaN"),
        (torch.tensor([1.0, float("inf")]), torch.tensor([1.0, -float("inf")]), "infinity"),
        (torch.tensor([1.0, 3.0]), torch.tensor([1.0, 2.0]), "1 of 2 elements differ, by up to 1 "),
        (torch.tensor([1, 7]), torch.tensor([1, 2]), "1 of 2 elements differ, by up to 5"),
        (torch.tensor([True]), torch.tensor([False]), "1 of 1"),
    ],
)
def test_differences(got, want, text):
    found = difference(got, want)
    assert found is not None
    assert text in found.text


@pytest.mark.parametrize(
    ("got", "want"),
    [
        (torch.tensor([1.00001, float("nan"), float("inf")]), torch.tensor([1.0, float("nan"), float("inf")])),
        (torch.empty(0), torch.empty(0)),
        (torch.empty(3, 0), torch.empty(0, 3).t()),
        (torch.tensor([1, 2]), torch.tensor([1, 2])),
        (torch.tensor([1e4, 1e-3]), torch.tensor([1e4, 0.0])),
    ],
)
def test_no_difference(got, want):
    assert difference(got, want) is None


def test_copies_share_memory_as_the_originals_do():
    base = torch.arange(12.0)
    originals = [base[2:6], base[4:8], base.view(3, 4).t(), torch.ones(1).expand(3), base[::5], 7]
    copies = copy_arguments(originals)
    assert_same(copies, originals)
    copies[0].fill_(-1)
    assert copies[1].tolist() == [-1, -1, 6, 7]
    assert base.tolist() == list(range(12))
