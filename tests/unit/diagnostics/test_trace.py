"""What torch's structured trace has of us."""

from __future__ import annotations

import json
import os
import subprocess
import sys

_SCRIPT = """
import torch
run = torch.compile(lambda x: torch.softmax(x * 2, -1).exp(), backend="turbine_lite_cpu")
run(torch.randn(3, 4))
"""


def test_stages_and_report_are_artifacts_of_the_trace(tmp_path):
    environment = {**os.environ, "TORCH_TRACE": str(tmp_path)}
    subprocess.run([sys.executable, "-W", "ignore", "-c", _SCRIPT], env=environment, check=True, capture_output=True)
    [log] = tmp_path.iterdir()
    found = {}
    name = None
    for line in log.read_text().splitlines():
        if line.startswith("\t"):
            if name:
                found[name] = found.get(name, "") + line[1:] + "\n"
        elif '"artifact"' in line:
            name = json.loads(line[line.index("{") :])["artifact"]["name"]
        else:
            name = None
    assert "torch.ops.aten" in found["turbine_lite_fx_graph"]
    assert "!torch.vtensor<[3,4],f32>" in found["turbine_lite_torch_mlir"]
    assert json.loads(found["turbine_lite_report"])["kind"] == "inference"
    assert "--iree-hal-target-backends=llvm-cpu" in json.loads(found["turbine_lite_compiled"])["flags"]
