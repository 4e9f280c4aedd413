"""Programs in one file."""

from __future__ import annotations

import json
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim

import turbine_lite
from tests.helpers import assert_same
from turbine_lite.errors import OptionError, PackageError, UnsupportedError
from turbine_lite.packaging import archive, targets


class Net(nn.Module):
    """An embedding, tied weights, a counter, and nested results."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.first, self.second = nn.Linear(16, 8), nn.Linear(16, 8)
        self.second.weight = self.first.weight
        self.register_buffer("calls", torch.zeros(3))

    def forward(self, ids, scale=2.0):
        self.calls.add_(1)
        hidden = self.embedding(ids)
        return {"y": self.first(hidden) * scale, "rest": (self.second(hidden).sum(1), [self.calls.clone()])}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    torch.manual_seed(0)
    net = Net().eval()
    path = tmp_path_factory.mktemp("package") / "net.tl"
    shapes = {"ids": {0: Dim("batch", min=1, max=64)}, "scale": None}
    turbine_lite.save(net, path, torch.randint(0, 50, (4, 6)), kwargs={"scale": 2.0}, dynamic_shapes=shapes)
    return net, path


def test_results_state_and_sizes(saved):
    net, path = saved
    package = turbine_lite.load(path)
    net.calls.zero_()
    for batch in (4, 7, 1, 64):
        ids = torch.randint(0, 50, (batch, 6))
        with torch.no_grad():
            assert_same(package(ids, scale=2.0), net(ids))
    package.reset()
    got = package(ids.numpy(), scale=2.0)
    assert type(got["y"]) is np.ndarray
    np.testing.assert_array_equal(got["rest"][1][0], [1, 1, 1])
    np.testing.assert_array_equal(turbine_lite.load(path)(ids, scale=2.0)["rest"][1][0], [1, 1, 1])


def test_wrong_calls(saved):
    _, path = saved
    package = turbine_lite.load(path)
    ids = torch.zeros(2, 6, dtype=torch.int64)
    with pytest.raises(IndexError, match="out of range"):
        package(ids + 50, scale=2.0)
    np.testing.assert_array_equal(package(ids, scale=2.0)["rest"][1][0], [1, 1, 1])  # the failed call wrote nothing
    with pytest.raises(TypeError, match="float32"):
        package(ids.float(), scale=2.0)
    with pytest.raises(ValueError, match="1 to 64"):
        package(torch.zeros(65, 6, dtype=torch.int64), scale=2.0)
    with pytest.raises(ValueError, match=r"shape \[2, 5\]"):
        package(ids[:, :5], scale=2.0)
    with pytest.raises(TypeError, match=r"was 2\.0"):
        package(ids, scale=3.0)
    with pytest.raises(TypeError, match="dictionary"):
        package(ids)
    with pytest.raises(KeyError, match="no entry point 'other'; it has main"):
        package["other"]
    with pytest.raises(OptionError, match="unknown driver"):
        turbine_lite.load(path, driver="gpu")


_BLOCKED = """
import sys, time
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked} or name.startswith("iree.compiler") or name.startswith("torch._dynamo"):
            raise ImportError("blocked: " + name)
sys.meta_path.insert(0, Block())
import numpy as np
import turbine_lite
started = time.perf_counter()
package = turbine_lite.load(sys.argv[1])
loaded = time.perf_counter()
result = package(np.zeros((4, 6), np.int64), scale=2.0)
print(result["rest"][1][0].tolist(), "torch" in sys.modules)
"""


def test_no_compiler_is_needed(saved):
    _, path = saved
    code = _BLOCKED.format(blocked=("torch", "torch_mlir"))
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[1.0, 1.0, 1.0] False\n", "")


def test_many_threads(saved):
    net, path = saved
    package = turbine_lite.load(path)
    ids = [torch.randint(0, 50, (1 + index, 6)) for index in range(8)]
    with torch.no_grad():
        want = [net(one)["y"] for one in ids]
    failures = []

    def work(index):
        for _ in range(20):
            try:
                assert_same(package(ids[index], scale=2.0)["y"], want[index])
            except Exception as error:  # whatever it is, for the main thread to see
                failures.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    np.testing.assert_array_equal(package(ids[0], scale=2.0)["rest"][1][0], [161] * 3)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.register_buffer("cache", torch.zeros(8, 4))

    def prefill(self, x):
        self.cache[:2] = self.inner(x)
        return self.cache.sum()

    def decode(self, x, at):
        self.cache.index_copy_(0, at, x)
        return self.inner(self.cache)


def test_entry_points_share_the_cache(tmp_path):
    torch.manual_seed(0)
    model = Decoder().eval()
    entries = {
        "prefill": turbine_lite.EntryPoint("prefill", (torch.randn(2, 4),)),
        "decode": turbine_lite.EntryPoint("decode", (torch.randn(1, 4), torch.tensor([3]))),
    }
    package = turbine_lite.load(turbine_lite.save(model, tmp_path / "m.tl", entry_points=entries))
    assert package.entry_points == ("prefill", "decode")
    with torch.no_grad():
        x = torch.randn(2, 4)
        assert_same(package["prefill"](x), model.prefill(x))
        for at in (3, 5, 3):
            x = torch.randn(1, 4)
            assert_same(package["decode"](x, torch.tensor([at])), model.decode(x, torch.tensor([at])))
    with pytest.raises(TypeError, match="choose one: prefill, decode"):
        package(x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, torch.int32, torch.uint8, torch.bool])
def test_dtypes_of_weights_arguments_and_state(dtype, tmp_path):
    class Keeper(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("weight", torch.arange(6).reshape(2, 3).to(dtype))
            self.register_buffer("last", torch.zeros(2, 3, dtype=dtype))

        def forward(self, x):
            before = self.last.clone()
            self.last.copy_(x)
            return before, torch.where(x > 0, self.weight, x)

    net = Keeper()
    x = torch.arange(6).flip(0).reshape(2, 3).to(dtype)
    package = turbine_lite.load(turbine_lite.save(Keeper(), tmp_path / "k.tl", x))
    for _ in range(2):
        assert_same(package(x), net(x))


def test_targets(tmp_path):
    net, x = nn.Linear(4, 3).eval(), torch.randn(2, 4)
    path = turbine_lite.save(net, tmp_path / "n.tl", x, targets=("aarch64", "x86-64-v4", "x86-64-v3", "host"))
    package = turbine_lite.load(path)
    assert package.target != "aarch64" or targets.platform.machine() == "aarch64"
    assert_same(package(x), net(x).detach())
    programs = [name for name in archive.Archive(path).description["pieces"] if name.startswith("program")]
    assert programs == ["program aarch64", "program x86-64-v4", "program x86-64-v3", "program host"]
    with pytest.raises(OptionError, match="unknown target 'z80'; known: host, x86-64-v4"):
        turbine_lite.save(net, path, x, targets=("z80",))


def test_a_cpu_that_cannot_run_it(tmp_path, monkeypatch):
    net, x = nn.Linear(4, 3).eval(), torch.randn(2, 4)
    path = turbine_lite.save(net, tmp_path / "n.tl", x, targets=("x86-64-v3", "aarch64"))
    monkeypatch.setattr(targets, "_features_here", lambda: {"sse2"})
    monkeypatch.setattr(targets.platform, "machine", lambda: "x86_64")
    with pytest.raises(PackageError, match=r"x86-64-v3: this CPU has no abm, avx, .*; aarch64: it is for aarch64"):
        turbine_lite.load(path)


def test_damage(saved, tmp_path):
    _, path = saved
    data = path.read_bytes()
    broken = tmp_path / "broken.tl"
    for end in (0, 10, 51, 60, 400, len(data) // 2, len(data) - 1):
        broken.write_bytes(data[:end])
        with pytest.raises(PackageError):
            turbine_lite.load(broken)
    pieces = archive.Archive(path).description["pieces"]
    places = {name: offset + length // 2 for name, (offset, length, _) in pieces.items() if length}
    for name, place in {"description": 200, **places}.items():
        broken.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(PackageError, match="damaged"):
            turbine_lite.load(broken, verify=True)
        if name.startswith("program"):
            with pytest.raises(PackageError, match="damaged"):
                turbine_lite.load(broken)
    broken.write_bytes(data[:8] + (99).to_bytes(4, "little") + data[12:])
    with pytest.raises(PackageError, match="format 99; this turbine_lite reads format 1"):
        turbine_lite.load(broken)
    broken.write_text("{}" * 100)
    with pytest.raises(PackageError, match="no package"):
        turbine_lite.load(broken)
    with pytest.raises(FileNotFoundError):
        turbine_lite.load(tmp_path / "none.tl")


def test_what_cannot_be_written_leaves_what_was_there(tmp_path):
    net, x = nn.Linear(4, 3).eval(), torch.randn(2, 4)
    path = tmp_path / "n.tl"
    path.write_text("before")
    with pytest.raises(FileNotFoundError, match="there is no directory"):
        turbine_lite.save(net, tmp_path / "no" / "n.tl", x)
    with pytest.raises(UnsupportedError, match="complex64"):
        turbine_lite.save(lambda z: z.real, path, torch.zeros(2, dtype=torch.complex64))
    code = (
        "import resource, signal, sys, torch, turbine_lite\n"
        "net = torch.nn.Linear(600, 600)\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "import turbine_lite.packaging.save as module\n"
        "write = module.write_archive\n"
        "def limited(*args):\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "    write(*args)\n"
        "module.write_archive = limited\n"
        "try:\n"
        "    turbine_lite.save(net, sys.argv[1], torch.zeros(1, 600))\n"
        "except OSError as error:\n"
        "    print('OSError', error.errno)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    assert done.stdout == "OSError 27\n", done.stderr
    assert path.read_text() == "before"
    assert [file.name for file in tmp_path.iterdir()] == ["n.tl"]


def test_the_file_says_what_it_is(saved):
    _, path = saved
    described = archive.Archive(path).description
    assert described["versions"].keys() >= {"torch", "iree-base-compiler", "turbine-lite"}
    assert [one["name"] for one in described["targets"]] == ["host"]
    assert list(described["weights"]) == ["embedding.weight", "first.weight", "first.bias", "second.bias", "calls"]
    assert all(offset % 64 == 0 for offset, _, _ in described["pieces"].values())
    json.dumps(described)
