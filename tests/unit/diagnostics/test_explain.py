"""``turbine_lite.explain`` against what a real run counts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter

import pytest
import torch
import transformers as hf
from torch._dynamo.utils import counters

import turbine_lite
from turbine_lite.compile_graph import _warned
from turbine_lite.compiler import cached
from turbine_lite.errors import CompilationError


def _with_three_unsupported(x):
    y = torch.special.airy_ai(x.exp() * 2 + 1)
    y = torch.special.laguerre_polynomial_l(y.sin() * 3 - 1, 3)
    return torch.special.airy_ai(y.cos() / 2 + x).tanh() * 2 + 1


def _bert():
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    model = hf.BertForSequenceClassification(hf.BertConfig(vocab_size=100, **sizes))
    return model, {"input_ids": torch.randint(0, 100, (2, 8)), "labels": torch.tensor([0, 1])}


def _counts_of(report):
    counts = Counter()
    for graph in report.graphs:
        graph.report.add_to(counts)
    return dict(counts)


def _counts_of_a_run(function, *args, **kwargs):
    counters.clear()
    result = torch.compile(function, backend="turbine_lite_cpu")(*args, **kwargs)
    if hasattr(result, "loss"):
        result.loss.backward()
    return dict(counters["turbine_lite"])


@pytest.mark.parametrize("build", [_bert, lambda: (_with_three_unsupported, {"x": torch.rand(5)})])
def test_counts_are_those_of_a_run(build):
    function, arguments = build()
    report = turbine_lite.explain(function, **arguments)
    torch._dynamo.reset()
    assert _counts_of(report) == _counts_of_a_run(function, **arguments)
    assert all(len(graph.regions) == len(graph.report.regions) for graph in report.graphs)


def test_training_has_its_backward_graph():
    model, arguments = _bert()
    report = turbine_lite.explain(model, **arguments)
    assert [graph.report.kind for graph in report.graphs] == ["forward", "backward"]
    assert "8 aten.bernoulli.p (random)" in str(report)
    assert report.advice == ()


def test_nothing_is_compiled(monkeypatch):
    def function(x):
        return x.exp() * 2

    x = torch.rand(4)
    with monkeypatch.context() as patch:
        patch.setattr(cached, "compile_to_vmfb", pytest.fail)
        report = turbine_lite.explain(function, x)
    assert report.graphs[0].regions[0].found == "nowhere"
    torch.compile(function, backend="turbine_lite_cpu")(x)
    assert turbine_lite.explain(function, x).graphs[0].regions[0].found == "memory"


def test_reasons_and_advice():
    report = turbine_lite.explain(_with_three_unsupported, torch.rand(5))
    [graph] = report.graphs
    assert {reason.op for reason in graph.report.reasons} == {
        "aten.special_airy_ai.default",
        "aten.special_laguerre_polynomial_l.n_scalar",
    }
    assert any(
        line.startswith("2 calls of aten.special_airy_ai.default run in eager, and the inference graph is cut in 4")
        for line in report.advice
    )
    assert "test_explain.py" in str(report)


def test_the_warning_is_for_who_runs_the_function(caplog):
    def function(x):
        return torch.special.airy_ai(x.sin() * 2 + 3) * 2

    x = torch.rand(5)
    _warned.clear()
    turbine_lite.explain(function, x)
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    torch.compile(function, backend="turbine_lite_cpu")(x)
    [warning] = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "aten.special_airy_ai.default" in warning.getMessage()


def test_graph_breaks_name_the_users_line():
    def function(x):
        y = x.exp() * 2
        torch._dynamo.graph_break()
        return y.sin() + 1

    report = turbine_lite.explain(function, torch.rand(3))
    assert len(report.graphs) == 2
    [one] = report.breaks
    assert "graph_break()" in one.source
    assert "test_explain.py" in report.advice[0]


def test_dynamic_sizes_parameters_and_dtypes():
    model = torch.nn.Linear(8, 4).double()
    with torch.no_grad():
        report = turbine_lite.explain(model, torch.rand(3, 8, dtype=torch.float64), dynamic=True)
    [region] = report.graphs[0].regions
    assert len(region.dynamic_dims) == 1
    assert (region.parameters, region.parameter_bytes) == (2, (8 * 4 + 4) * 8)
    assert region.dtypes == ("torch.float64",)
    assert "float32" in report.advice[0]


def test_an_error_in_the_lowering_is_a_reason(monkeypatch):
    def refuse(*args):
        raise CompilationError("no", stage="lower", diagnostics="fx/sin:0:0: error: no")

    monkeypatch.setattr(cached, "check_lowering", refuse)
    report = turbine_lite.explain(lambda x: x.sin() * 2, torch.rand(3), options={"cache": False})
    assert report.native_calls == 0
    assert "not-lowered" in str(report)


def test_json_has_all_of_it():
    content = json.loads(turbine_lite.explain(_with_three_unsupported, torch.rand(5)).to_json())
    assert content["graphs"][0]["report"]["kind"] == "inference"
    assert content["options"]["min_block_size"] >= 1
    assert len(content["advice"]) == 2


def test_scripts_run_alone(tmp_path):
    def function(x, index):
        mask = x > torch.tensor([0.25, float("inf"), 0.5])
        return torch.where(mask, x.sin(), x[index].exp() * 2 + torch.rand(3))

    report = turbine_lite.explain(function, torch.rand(4, 3), torch.tensor([0, 1, 0, 1]))
    [script] = report.write_repro(tmp_path)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.stdout == "1 results equal\n", done.stderr


def test_wrong_options_are_refused():
    with pytest.raises(turbine_lite.OptionError, match="unknown option 'fast'"):
        turbine_lite.explain(lambda x: x, torch.rand(1), options={"fast": True})
    with pytest.raises(TypeError):
        turbine_lite.explain()
