"""``turbine-lite cache``."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile

import pytest

from turbine_lite import cli
from turbine_lite.compiler.cache import CacheDirectory, Entry
from turbine_lite.compiler.cache_key import cache_key
from turbine_lite.compiler.flags import FlagSet


def _put(program="p", convention="main (f32) -> f32", vmfb=b"v" * 2048, **more):
    key = cache_key(
        program=program,
        calling_convention=convention,
        purpose="all",
        flag_sets=(FlagSet("fast", ("--level=O3",), ()),),
        compiler="worker",
        tag="",
    )
    meta = {"key": dict(key.values), "seconds": {"compile": 1.5}, **more}
    CacheDirectory().put(key.digest, Entry(vmfb, meta))
    return key.digest


def _run(capsys, *arguments):
    status = cli.main(["cache", *arguments])
    return status, capsys.readouterr().out


def test_an_empty_cache(capsys, tmp_path):
    assert _run(capsys, "path") == (0, f"{CacheDirectory().root}\n")
    assert _run(capsys, "list") == (0, "")
    assert _run(capsys, "verify") == (0, "0 damaged\n")
    assert _run(capsys, "clear") == (0, "0 entries removed\n")
    assert _run(capsys, "export", str(tmp_path / "f.tgz"))[0] == 0
    assert "entries    0: 0 programs" in _run(capsys, "stats")[1]


def test_list_and_stats(capsys):
    digest = _put()
    _put("q", vmfb=b"", failure={"headline": "no"})
    status, out = _run(capsys, "list")
    [program] = [line for line in out.splitlines() if line.startswith(digest[:16])]
    assert (status, len(out.splitlines())) == (0, 2)
    assert "2 KiB" in program
    assert "1.5 s" in program
    assert program.endswith("main (f32) -> f32")
    assert "refused" in out
    out = _run(capsys, "stats")[1]
    assert "entries    2: 1 programs\nrefused    1\ndamaged    0\n" in out
    assert "compiling  3.0 s" in out


def test_verify_finds_and_removes_what_is_damaged(capsys):
    digest = _put()
    _put("q")
    (CacheDirectory().root / digest / "module.vmfb").write_bytes(b"x")
    assert "damaged    1" in _run(capsys, "stats")[1]
    assert f"{digest[:16]}  damaged" in _run(capsys, "list")[1]
    status, out = _run(capsys, "verify")
    assert (status, out.splitlines()[-1]) == (1, "1 damaged")
    assert _run(capsys, "verify", "--remove")[0] == 1
    assert _run(capsys, "verify") == (0, "0 damaged\n")
    assert len(CacheDirectory().digests()) == 1


def test_a_miss_is_explained(capsys):
    assert "is the only entry" in (_put(), _run(capsys, "explain-miss"))[1][1]
    _put("other", "main (f64) -> f64")
    digest = _put("q")
    status, out = _run(capsys, "explain-miss", digest[:20])
    assert (status, out.splitlines()[1:]) == (0, ["  program", "    -p", "    +q"])
    with pytest.raises(SystemExit, match="no entry 'zz'"):
        cli.main(["cache", "explain-miss", "zz"])


def test_entries_travel_as_one_file(capsys, tmp_path):
    digests = {_put(), _put("q")}
    file = str(tmp_path / "cache.tgz")
    assert _run(capsys, "export", file) == (0, f"2 entries written to {file}\n")
    assert _run(capsys, "clear") == (0, "2 entries removed\n")
    assert _run(capsys, "import", file) == (0, f"2 entries taken from {file}\n")
    assert set(CacheDirectory().digests()) == digests
    assert CacheDirectory().get(min(digests)).vmfb == b"v" * 2048


@pytest.mark.parametrize("fault", ["program", "name", "key", "path"])
def test_what_is_damaged_is_not_imported(capsys, tmp_path, fault):
    digest = _put()
    entry = CacheDirectory().read(digest)
    meta, vmfb = dict(entry.meta), entry.vmfb
    name = digest
    if fault == "program":
        vmfb = b"another"
    elif fault == "name":
        name = "0" * 64
    elif fault == "key":
        name = meta["digest"] = "0" * 64
    else:
        name = meta["digest"] = "../outside"
    CacheDirectory().clear()
    with tarfile.open(tmp_path / "f.tar", "w") as archive:
        for file, data in (("meta.json", json.dumps(meta).encode()), ("module.vmfb", vmfb)):
            info = tarfile.TarInfo(f"{name}/{file}")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    status, out = _run(capsys, "import", str(tmp_path / "f.tar"))
    assert (status, out.splitlines()[-1]) == (1, f"0 entries taken from {tmp_path / 'f.tar'}")
    assert CacheDirectory().digests() == []


@pytest.mark.parametrize("content", [None, b"", b"no archive"])
def test_a_file_that_is_none_is_one_line(capsys, tmp_path, content):
    if content is not None:
        (tmp_path / "f").write_bytes(content)
    assert cli.main(["cache", "import", str(tmp_path / "f")]) == 2
    assert capsys.readouterr().err.startswith("turbine-lite: ")


def test_the_command_imports_neither_torch_nor_iree():
    code = (
        "import sys; from turbine_lite import cli; cli.main(['cache', 'path']);"
        "print({'torch', 'iree'} & {*sys.modules})"
    )
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert out.splitlines()[-1] == "set()"
