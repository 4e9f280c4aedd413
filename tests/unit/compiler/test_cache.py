"""The directory of compiled programs, whatever happens to its files."""

from __future__ import annotations

import errno
import logging
import os
import random
import resource
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from turbine_lite.compiler import cache
from turbine_lite.compiler.cache import CacheDirectory, Entry

_DIGEST = "d" * 64


@pytest.fixture(autouse=True)
def _new_process(monkeypatch):
    monkeypatch.setattr(cache, "_warned", set())
    monkeypatch.setattr(cache, "_writes", {})


@pytest.fixture
def directory(tmp_path):
    return CacheDirectory(tmp_path / "programs")


def _entry(byte=b"p", size=5000):
    return Entry(byte * size, {"seconds": {"compile": 0.25}, "flags": ["--a", "--b"]})


def _warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def _run(code, *arguments, **kwargs):
    """Start a process that imports neither torch nor IREE."""
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)], **kwargs)


def test_what_is_put_is_there(directory, caplog):
    assert directory.get(_DIGEST) is None
    directory.put(_DIGEST, _entry())
    found = directory.get(_DIGEST)
    assert found.vmfb == _entry().vmfb
    assert found.meta["seconds"] == {"compile": 0.25}
    assert found.meta["bytes"] == 5000
    assert directory.root.stat().st_mode & 0o777 == 0o700
    assert (directory.root / _DIGEST).stat().st_mode & 0o777 == 0o700
    assert not _warnings(caplog)


def test_an_entry_that_is_there_stays(directory):
    directory.put(_DIGEST, _entry(b"1"))
    directory.put(_DIGEST, _entry(b"2"))
    assert directory.get(_DIGEST).vmfb[:1] == b"1"
    assert os.listdir(directory.root) == [_DIGEST]


def _is_a_miss_and_can_be_put_again(directory, caplog):
    caplog.clear()
    assert directory.get(_DIGEST) is None
    assert len(_warnings(caplog)) == 1
    assert "cannot be used" in _warnings(caplog)[0]
    assert directory.get(_DIGEST) is None
    assert len(_warnings(caplog)) == 1
    directory.put(_DIGEST, _entry())
    assert directory.get(_DIGEST).vmfb == _entry().vmfb


@pytest.mark.parametrize("name", ["module.vmfb", "meta.json"])
@pytest.mark.parametrize("fault", ["truncated", "flipped", "removed", "directory"])
def test_damage_anywhere_is_a_miss(directory, caplog, name, fault):
    draw = random.Random(name + fault)
    directory.put(_DIGEST, _entry())
    path = directory.root / _DIGEST / name
    whole = path.read_bytes()
    for _ in range(50 if fault in ("truncated", "flipped") else 1):
        path.unlink()
        if fault == "truncated":
            path.write_bytes(whole[: draw.randrange(len(whole) - 1)])
        elif fault == "flipped":
            position = draw.randrange(len(whole) - 1)
            path.write_bytes(
                whole[:position] + bytes([whole[position] ^ (1 << draw.randrange(8))]) + whole[position + 1 :]
            )
        elif fault == "directory":
            path.mkdir()
        _is_a_miss_and_can_be_put_again(directory, caplog)
        whole = path.read_bytes()


def test_an_entry_under_another_name_is_a_miss(directory, caplog):
    directory.put("e" * 64, _entry(b"e"))
    os.rename(directory.root / ("e" * 64), directory.root / _DIGEST)
    _is_a_miss_and_can_be_put_again(directory, caplog)


def test_a_file_in_the_place_of_an_entry_is_a_miss(directory, caplog):
    directory.put("e" * 64, _entry())
    (directory.root / _DIGEST).write_text("?")
    _is_a_miss_and_can_be_put_again(directory, caplog)


def test_a_place_where_no_directory_can_be_is_one_warning(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    directory = CacheDirectory(tmp_path / "file" / "programs")
    for _ in range(3):
        directory.put(_DIGEST, _entry())
        assert directory.get(_DIGEST) is None
    assert len(_warnings(caplog)) == 1
    assert "cannot keep programs" in _warnings(caplog)[0]


def test_a_directory_that_cannot_be_written_is_read(directory, monkeypatch, caplog):
    directory.put(_DIGEST, _entry())

    def refuse(*args, **kwargs):
        raise PermissionError(errno.EROFS, "Read-only file system")

    for name in ("mkdir", "rename", "utime", "unlink"):
        monkeypatch.setattr(cache.os, name, refuse)
    assert directory.get(_DIGEST).vmfb == _entry().vmfb
    for digit in "ef":
        directory.put(digit * 64, _entry())
        assert directory.get(digit * 64) is None
    assert len(_warnings(caplog)) == 1


def test_a_full_disk_costs_nothing_but_the_entry(directory):
    code = """
        import os, resource, signal, sys
        from pathlib import Path
        from turbine_lite.compiler.cache import CacheDirectory, Entry
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        directory = CacheDirectory(Path(sys.argv[1]))
        for number, size in enumerate(range(0, 20000, 500)):
            directory.put(f"{number:064}", Entry(b"x" * size, {}))
        print(sum(directory.get(f"{number:064}") is not None for number in range(40)))
    """

    def little_room():
        resource.setrlimit(resource.RLIMIT_FSIZE, (8000, 8000))

    process = _run(code, directory.root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=little_room)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output.split()) == (0, [b"17"])
    assert errors.count(b"cannot keep programs") == 1
    assert len(directory.digests()) == 17
    assert not list(directory.root.glob(".new-*"))


_WRITER = """
    import os, sys
    from pathlib import Path
    from turbine_lite.compiler.cache import CacheDirectory, Entry
    directory = CacheDirectory(Path(sys.argv[1]))
    print("ready", flush=True)
    number = 0
    while True:
        digest = f"{number % 50:064}"
        directory.put(digest, Entry(digest.encode() * 3000, {"number": number % 50}))
        if number % 3:
            directory.remove(digest)
        number += 1
"""


def test_a_writer_that_is_killed_leaves_whole_entries(directory, caplog):
    draw = random.Random(0)
    for _ in range(20):
        writer = _run(_WRITER, directory.root, stdout=subprocess.PIPE)
        assert writer.stdout.readline() == b"ready\n"
        time.sleep(draw.uniform(0, 0.05))
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
        for digest in directory.digests():
            assert directory.read(digest).vmfb == digest.encode() * 3000
    assert not _warnings(caplog)
    for path in directory.root.glob(".new-*"):
        os.utime(path, (0, 0))
    directory.trim()
    assert not list(directory.root.glob(".new-*"))


def test_eight_processes_at_once(directory):
    code = """
        import random, sys
        from pathlib import Path
        from turbine_lite.compiler.cache import CacheDirectory, Entry
        directory = CacheDirectory(Path(sys.argv[1]), limit=400_000)
        draw = random.Random(sys.argv[2])
        hits = 0
        for _ in range(400):
            digest = f"{draw.randrange(12):064}"
            found = directory.get(digest)
            if found is None:
                directory.put(digest, Entry(digest.encode() * 1000, {}))
            else:
                assert found.vmfb == digest.encode() * 1000
                hits += 1
            if draw.random() < 0.1:
                directory.trim()
        print(hits)
    """
    processes = [_run(code, directory.root, seed, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for seed in range(8)]
    for process in processes:
        output, errors = process.communicate(timeout=120)
        assert (process.returncode, errors) == (0, b"")
        assert int(output) > 100
    assert not list(directory.root.glob(".new-*"))


def test_what_was_not_used_for_the_longest_time_goes(tmp_path):
    directory = CacheDirectory(tmp_path, limit=40_000)
    for number in range(6):
        directory.put(f"{number:064}", _entry())
        os.utime(directory.root / f"{number:064}" / "meta.json", (number, number))
    assert directory.get(f"{0:064}") is not None  # is the one used last now
    assert directory.trim() == 0
    directory.limit = 25_000
    assert directory.trim() == 3
    assert directory.digests() == [f"{number:064}" for number in (0, 5, 4)]


def test_writing_trims(tmp_path):
    directory = CacheDirectory(tmp_path, limit=100_000)
    for number in range(100):
        directory.put(f"{number:064}", _entry())
    assert len(directory.digests()) < 60


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="no users to tell apart")
def test_what_others_can_write_is_not_run(directory, caplog):
    directory.put(_DIGEST, _entry())
    directory.root.chmod(0o777)
    for _ in range(2):
        assert directory.get(_DIGEST) is None
        directory.put(_DIGEST, _entry())
    assert len(_warnings(caplog)) == 1
    assert "others can write" in _warnings(caplog)[0]
    directory.root.chmod(0o700)
    assert directory.get(_DIGEST) is not None


def test_clear(directory):
    for number in range(3):
        directory.put(f"{number:064}", _entry())
    (directory.root / ".new-left").mkdir()
    assert directory.clear() == 3
    assert os.listdir(directory.root) == []
