"""Environments for peers that do not install beside this project.

``python -m benchmarks.environments PEER`` makes one, in ``benchmarks/environments/PEER``; from then on the benchmark
times that peer there.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import venv
from pathlib import Path

from benchmarks.peers import PEERS

__all__ = ["interpreter_of", "main"]

_HERE = Path(__file__).parent / "environments"

# What each needs; torch is pinned to what this project is timed with.
_PACKAGES = {
    "openvino": ["openvino>=2025.3"],
    "onnxruntime": ["onnxruntime>=1.24", "onnx>=1.19", "onnxscript>=0.5"],
    "turbine_cpu": ["iree-turbine>=3.9,<3.10", "iree-base-compiler>=3.9,<3.10", "iree-base-runtime>=3.9,<3.10"],
}
_COMMON = ["torch>=2.13,<2.14", "transformers>=5", "numpy>=1.26", "setuptools"]


def interpreter_of(peer: str) -> str | None:
    """The Python that runs a peer, or None where it is not installed."""
    own = _HERE / peer / "bin" / "python"
    if own.exists():
        return str(own)
    return sys.executable if PEERS[peer].is_here else None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.environments", description=__doc__)
    parser.add_argument("peer", choices=sorted(_PACKAGES))
    peer = parser.parse_args().peer
    place = _HERE / peer
    venv.create(place, with_pip=True, clear=True)
    pip = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    return subprocess.call([*pip, *_COMMON, *_PACKAGES[peer]])


if __name__ == "__main__":
    sys.exit(main())
