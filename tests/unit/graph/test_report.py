"""Counts of what runs where, and regions too small to pay."""

from __future__ import annotations

import torch
from torch._dynamo.utils import counters

from tests.helpers import assert_same
from turbine_lite.compile_graph import compile_graph
from turbine_lite.options import Options

UNSUPPORTED = torch.special.airy_ai


def run(function, *args, **options):
    got = torch.compile(function, backend="turbine_lite_cpu", options=options)(*args)
    assert_same(got, function(*args))
    return dict(counters["turbine_lite"])


def test_a_graph_in_one_piece():
    counts = run(lambda x: (x + 1).exp().t(), torch.ones(4, 8))
    assert (counts["nodes native"], counts["nodes eager"]) == (2, 0)
    assert counts["bytes crossing"] == 2 * 4 * 8 * 4


def test_a_graph_of_one_operator_is_not_cut():
    assert run(lambda x: x + 1, torch.ones(3))["nodes native"] == 1


def test_small_regions_stay_in_eager():
    def program(x):
        y = (x + 1).exp() * 2  # three operators pay
        return UNSUPPORTED(y) - 1  # the last one does not

    counts = run(program, torch.ones(3))
    assert (counts["nodes native"], counts["nodes eager"], counts["executables"]) == (3, 2, 1)
    assert counts["eager aten.sub.Tensor: small"] == 1
    torch._dynamo.reset()
    counters.clear()
    counts = run(program, torch.ones(3), min_block_size=1)
    assert (counts["nodes native"], counts["nodes eager"], counts["executables"]) == (4, 1, 2)
    torch._dynamo.reset()
    counters.clear()
    counts = run(program, torch.ones(3), min_block_size=4)
    assert (counts["nodes native"], counts["nodes eager"]) == (0, 5)


def test_the_report_is_on_the_compiled_graph():
    from torch.fx.experimental.proxy_tensor import make_fx

    gm = make_fx(lambda x: (UNSUPPORTED((x + 1).exp().sin()),), tracing_mode="fake")(torch.ones(6))
    report = compile_graph(gm, Options(), "inference").report
    assert (report.kind, report.calls, report.native_calls) == ("inference", 4, 3)
    (region,) = report.regions
    assert (region.calls, region.bytes_in, region.bytes_out) == (3, 24, 24)
    assert [reason.op for reason in report.reasons] == ["aten.special_airy_ai.default"]
