"""The example server, under load from several clients."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.export import Dim

import turbine_lite

pytest.importorskip("starlette", reason="starlette is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")
httpx = pytest.importorskip("httpx", reason="httpx is not installed")


@pytest.fixture
def served(tmp_path):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 4)).eval()
    shapes = ({0: Dim("rows", min=1, max=32)},)
    path = turbine_lite.save(net, tmp_path / "net.tl", torch.randn(2, 8), dynamic_shapes=shapes)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "uvicorn",
        "tests.exporting.server:app",
        "--port",
        str(port),
        "--log-level",
        "error",
    ]
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    with subprocess.Popen(command, cwd=root, env={**os.environ, "PACKAGE": str(path)}) as process:
        url = f"http://127.0.0.1:{port}/predict"
        for _ in range(600):
            try:
                httpx.post(url, json={})
                break
            except httpx.ConnectError:
                time.sleep(0.1)
        yield net, url
        process.terminate()


def test_several_clients(served):
    net, url = served

    def client(seed):
        rows = torch.randn(1 + seed % 5, 8, generator=torch.Generator().manual_seed(seed))
        with httpx.Client() as session:
            for _ in range(25):
                answer = session.post(url, json={"rows": rows.tolist()})
                assert answer.status_code == 200
                torch.testing.assert_close(
                    torch.tensor(answer.json()["rows"]), net(rows).detach(), rtol=1e-4, atol=1e-5
                )
        return 25

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(client, range(8))) == 200
    answer = httpx.post(url, json={"rows": [[1.0, 2.0]]})
    assert answer.status_code == 400
    assert "float32[?, 8]; it got the shape [1, 2]" in answer.json()["error"]
