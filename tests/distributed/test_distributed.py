"""Training on several ranks over gloo: each case of ``worker.py`` under torchrun, in processes of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Minutes, and as many processes as ranks.
pytestmark = pytest.mark.full

WORKER = Path(__file__).with_name("worker.py")
CASES = ("ddp", "fsdp", "fsdp_whole", "in_graph")
TIMEOUT = 900.0  # two cores that other tests use as well


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("case", CASES)
def test_equals_eager(case, ranks, tmp_path):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": "localhost",
        # Ranks import this installation, not what lies in the working directory.
        "PYTHONSAFEPATH": "1",
    }
    process = subprocess.Popen(
        [*torchrun, str(WORKER), case],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        process.terminate()  # torchrun ends its ranks
        output, _ = process.communicate(timeout=60)
        pytest.fail(f"{case} on {ranks} ranks took more than {TIMEOUT} s:\n{output}")
    assert process.returncode == 0, output
    lines = output.splitlines()
    assert lines[lines.index("finished") :] == ["finished"] * ranks, output
