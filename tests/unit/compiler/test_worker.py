"""The compiler process: reuse, death, hangs, interrupts, fork, scripts without a main guard."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch

from tests.helpers import assert_same
from turbine_lite.compiler import client
from turbine_lite.compiler.pipeline import Request
from turbine_lite.errors import CompilationError, CompilerKilledError, CompilerTimeoutError

FLAGS = ("--iree-hal-target-backends=llvm-cpu", "--iree-llvmcpu-target-cpu=host")
PROGRAM = b"""
func.func @main(%a: !torch.vtensor<[4],f32>) -> !torch.vtensor<[4],f32> {
  %0 = torch.aten.sin %a : !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>
  return %0 : !torch.vtensor<[4],f32>
}
"""


@pytest.fixture(autouse=True)
def _fresh_workers():
    client.shut_down()
    yield
    client.shut_down()


def compile_program(program: bytes = PROGRAM, timeout: float = 120.0, **options):
    return client.compile_in_worker(Request(program, ()), FLAGS, timeout, **options)


def large_program(steps: int = 400) -> bytes:
    """One that takes the compiler several seconds."""
    size = "!torch.vtensor<[31,31],f32>"
    lines = [f"func.func @main(%v0: {size}) -> {size} {{"]
    lines += [
        f"  %v{i + 1} = torch.aten.{('mm' if i % 2 else 'matmul')} %v{i}, %v{i} : {size}, {size} -> {size}"
        for i in range(steps)
    ]
    return "\n".join([*lines, f"  return %v{steps} : {size}", "}"]).encode()


def wait_for_worker() -> int:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if pids := client.worker_pids():
            return pids[0]
        time.sleep(0.01)
    raise AssertionError("no worker was started")


def test_is_started_once_and_reused():
    assert client.worker_pids() == ()
    assert compile_program().vmfb
    first = client.worker_pids()
    assert compile_program().vmfb
    assert client.worker_pids() == first
    assert len(first) == 1


def test_who_nobody_waits_for_leaves_the_cpus_to_others():
    assert compile_program(in_background=True).vmfb
    (behind,) = client.worker_pids()
    assert compile_program().vmfb
    (beside,) = set(client.worker_pids()) - {behind}
    ours = os.getpriority(os.PRIO_PROCESS, 0)
    assert os.getpriority(os.PRIO_PROCESS, behind) == min(19, ours + 10)
    assert os.getpriority(os.PRIO_PROCESS, beside) == ours
    assert compile_program(in_background=True).vmfb
    assert set(client.worker_pids()) == {behind, beside}


def test_diagnostics_come_back_as_text():
    response = compile_program(
        PROGRAM.replace(b"torch.aten.sin %a", b'torch.operator "torch.aten.nothing"(%a)').replace(
            b": !torch.vtensor<[4],f32> ->", b": (!torch.vtensor<[4],f32>) ->"
        )
    )
    assert response.failed_stage == "lower"
    assert "torch.aten.nothing" in response.diagnostics[0].text


def test_text_that_does_not_parse():
    response = compile_program(b"func.func @main(")
    assert response.failed_stage == "parse"
    assert response.diagnostics


def test_a_file_of_the_users_does_not_stand_in_for_a_module_of_pythons(tmp_path, monkeypatch):
    (tmp_path / "resource.py").write_text("raise SystemExit('the wrong one')")
    monkeypatch.syspath_prepend(tmp_path)  # as the folder of a script is
    assert compile_program().vmfb is not None


def test_a_dead_worker_is_replaced():
    compile_program()
    (pid,) = client.worker_pids()
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert compile_program().vmfb
    assert client.worker_pids() != (pid,)


def test_a_worker_that_dies_during_a_compilation_is_an_error_with_the_signal():
    killer = threading.Thread(target=lambda: os.kill(wait_for_worker(), signal.SIGKILL))
    killer.start()
    with pytest.raises(CompilerKilledError, match="SIGKILL"):
        compile_program(large_program())
    killer.join()
    assert compile_program().vmfb


def test_a_hang_ends_after_the_time_limit():
    start = time.monotonic()
    with pytest.raises(CompilerTimeoutError, match=r"longer than 0\.5 s"):
        compile_program(large_program(), timeout=0.5)
    assert time.monotonic() - start < 30
    assert client.worker_pids() == ()
    assert compile_program().vmfb


def test_an_interrupt_leaves_no_half_read_answer(monkeypatch):
    compile_program()

    def interrupted(*_args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(client, "read_message", interrupted)
        with pytest.raises(KeyboardInterrupt):
            compile_program()
    response = compile_program(b"func.func @main(")
    assert response.failed_stage == "parse"  # the answer to this request, not to the one before


@pytest.mark.parametrize("most", [1, 3])
def test_threads_share_workers(most, monkeypatch):
    monkeypatch.setattr(client, "most_at_once", lambda: most)
    responses = []
    threads = [threading.Thread(target=lambda: responses.append(compile_program())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [bool(r.vmfb) for r in responses] == [True] * 4
    assert 1 <= len(client.worker_pids()) <= most


def test_processes_of_torchrun_share_the_cpus(monkeypatch):
    monkeypatch.setattr(client.os, "sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.setattr(client.os, "sysconf", lambda name: 4096 if name == "SC_PAGE_SIZE" else 6 << 18)
    for environment, expected in (("", 6), ("2", 3), ("100", 1), ("?", 6), ("0", 6)):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", environment)
        assert client.most_at_once() == expected


def test_no_interpreter_is_a_clear_error(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(CompilationError, match="compiler process could not be started"):
        compile_program()


def test_sigkill_mid_compile_still_gives_eagers_result_with_one_warning(caplog):
    """The whole way: the user's call returns what eager returns."""

    def function(x):
        for _ in range(150):
            x = torch.tanh(x @ x)
        return x

    done = threading.Event()

    def kill_every_worker():
        while not done.is_set():
            for pid in client.worker_pids():
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)

    killer = threading.Thread(target=kill_every_worker)
    killer.start()
    x = torch.randn(31, 31)
    try:
        got = torch.compile(function, backend="turbine_lite_cpu")(x)
    finally:
        done.set()
        killer.join()
    assert_same(got, function(x))
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1
    assert "SIGKILL" in warnings[0].getMessage()


SCRIPT = """
import os, torch
f = torch.compile(lambda x: x * 2 + 1, backend="turbine_lite_cpu")
print(f(torch.ones(3)).tolist(), flush=True)
if {fork}:
    pid = os.fork()
    if pid == 0:
        g = torch.compile(lambda x: x * 3, backend="turbine_lite_cpu")
        print(f(torch.ones(3)).tolist(), g(torch.ones(2)).tolist(), flush=True)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    print(torch.compile(lambda x: x * 5, backend="turbine_lite_cpu")(torch.ones(1)).tolist(), flush=True)
"""


@pytest.mark.parametrize("driver", ["local-sync", "local-task"])
def test_fork_and_scripts_without_a_main_guard(tmp_path, driver):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(fork=True))
    done = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "TURBINE_LITE_DRIVER": driver},
        check=False,
    )
    expected = "[3.0, 3.0, 3.0]\n[3.0, 3.0, 3.0] [3.0, 3.0]\n0\n[5.0]\n"
    assert (done.stdout, done.stderr, done.returncode) == (expected, "", 0)


def test_no_worker_outlives_its_parent(monkeypatch):
    monkeypatch.setenv("TURBINE_LITE_CACHE", "0")
    code = (
        "import os, torch; from turbine_lite.compiler import client;"
        "torch.compile(lambda x: x + 1, backend='turbine_lite_cpu')(torch.ones(2));"
        "print(client.worker_pids()[0], flush=True); {end}"
    )
    for end in ("pass", "os.kill(os.getpid(), 9)"):
        done = subprocess.run([sys.executable, "-c", code.format(end=end)], capture_output=True, text=True, check=False)
        pid = int(done.stdout)
        deadline = time.monotonic() + 10
        while os.path.exists(f"/proc/{pid}") and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not os.path.exists(f"/proc/{pid}")


def test_a_worker_may_not_take_all_memory():
    compile_program()
    (pid,) = client.worker_pids()
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    soft, _ = resource.prlimit(pid, resource.RLIMIT_DATA)
    assert 0 < soft <= memory // 2
