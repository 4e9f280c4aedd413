"""The parent's end of the compiler process: start, talk, time out, restart, end."""

from __future__ import annotations

import atexit
import os
import select
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from typing import IO, Any, Protocol, TypeVar

from turbine_lite.compiler.worker import read_message, write_message
from turbine_lite.errors import CompilationError, CompilerCrashError, CompilerKilledError, CompilerTimeoutError

__all__ = ["Work", "compile_in_worker", "most_at_once", "shut_down", "worker_pids"]

# A compiler process holds 100 to 200 MB, and several times that at work on a large program. Most programs need one set
# of flags, few more than two.
_MOST_IDLE = 3
_BYTES_AT_WORK = 1 << 30

# Added to this process's niceness for compilers nobody waits for: to the kernel's scheduler they weigh a tenth.
_NICE = 10

_idle: list[_Worker] = []  # the one used last at the end
_busy: set[_Worker] = set()
_changed = threading.Condition()
_is_closed = False


_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


class Work(Protocol[_T_co]):
    """What a worker is sent: it must be picklable, and what it returns, too."""

    def run(self) -> _T_co:
        """Do the work; called in the worker."""


def compile_in_worker(
    request: Work[_T], global_flags: tuple[str, ...], timeout: float, *, in_background: bool = False
) -> _T:
    """Have a worker process that was started with ``global_flags`` run a request; any thread may call it.

    Where as many are at work as :func:`most_at_once` allows, it waits. A worker ``in_background`` leaves the CPUs to
    others; it never becomes another one, since only the superuser may raise priorities.

    Raises:
        CompilerCrashError: the worker brought itself down. The next call starts another one.
        CompilerKilledError: the worker was killed from outside. The next call starts another one.
        CompilerTimeoutError: it took more than ``timeout`` seconds and was killed.
        CompilationError: no worker could be started.
    """
    worker = _take(global_flags, _NICE if in_background else 0)
    try:
        return worker.request(request, timeout)
    finally:
        _give_back(worker)


def most_at_once() -> int:
    """How many compilers may work at the same time: one for each CPU, if there is memory for them.

    The CPUs are those of this process; the processes that ``torchrun`` starts share them.
    """
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    share = os.environ.get("LOCAL_WORLD_SIZE", "")
    sharers = int(share) if share.isdecimal() and int(share) else 1
    return max(1, min(cpus, memory // _BYTES_AT_WORK) // sharers)


def _take(global_flags: tuple[str, ...], nice: int) -> _Worker:
    surplus: list[_Worker] = []
    with _changed:
        while len(_busy) >= most_at_once():
            _changed.wait()
        if _is_closed:
            raise CompilerKilledError("the interpreter is exiting", stage="compile")
        fitting = [worker for worker in _idle if (worker.global_flags, worker.nice) == (global_flags, nice)]
        worker = fitting[-1] if fitting else _Worker(global_flags, nice)
        if fitting:
            _idle.remove(worker)
        else:
            while len(_idle) >= _MOST_IDLE:
                surplus.append(_idle.pop(0))
        _busy.add(worker)
    for other in surplus:
        other.stop()
    return worker


def _give_back(worker: _Worker) -> None:
    with _changed:
        if worker in _busy:  # else all were ended meanwhile
            _busy.remove(worker)
            _idle.append(worker)
            _changed.notify()


def worker_pids() -> tuple[int, ...]:
    """Process ids of the workers that are running now."""
    with _changed:
        workers = [*_idle, *_busy]
    processes = [worker.process for worker in workers]
    return tuple(process.pid for process in processes if process is not None and process.poll() is None)


def shut_down(*, for_good: bool = False) -> None:
    """End all workers of this process; ``for_good``: no other will be started."""
    global _is_closed
    with _changed:
        _is_closed = _is_closed or for_good
        workers = [*_idle, *_busy]
        _idle.clear()
        _busy.clear()
        _changed.notify_all()
    for worker in workers:
        worker.stop()


def _search_path() -> list[str]:
    """This process's, Python's own library first.

    A module beside the user's program, say ``resource.py``, must not stand in for one that the worker needs.
    """
    library = sysconfig.get_path("stdlib")
    own = (library, os.path.join(library, "lib-dynload"))
    return sorted(filter(None, sys.path), key=lambda path: path not in own)


class _Worker:
    """One compiler process, which gets one request at a time."""

    def __init__(self, global_flags: tuple[str, ...], nice: int) -> None:
        self.global_flags = global_flags
        self.nice = nice
        self.process: subprocess.Popen[bytes] | None = None
        self.stderr: IO[bytes] | None = None

    def request(self, request: Work[_T], timeout: float) -> _T:
        before = self.process
        process = self._running()
        assert self.stderr is not None
        printed_before = os.fstat(self.stderr.fileno()).st_size if process is before else 0
        try:
            return self._exchange(process, request, timeout)
        except TimeoutError:
            self._kill()
            raise CompilerTimeoutError(
                f"the compiler took longer than {timeout:g} s and was stopped (option compile_timeout)",
                stage="compile",
                diagnostics=self._printed_since(printed_before),
            ) from None
        except (EOFError, BrokenPipeError, ConnectionResetError):
            self._kill()
            if (process.returncode or 0) > 0:  # it ended by itself: IREE exits on flags that it does not know
                raise CompilationError(
                    f"the compiler process ended with {_how_it_ended(process)}; are the compile_flags right?",
                    stage="flags",
                    diagnostics=self._printed_since(printed_before),
                ) from None
            killed = process.returncode == -signal.SIGKILL
            raise (CompilerKilledError if killed else CompilerCrashError)(
                f"the compiler process died: {_how_it_ended(process)}",
                stage="compile",
                diagnostics=self._printed_since(printed_before),
            ) from None
        except BaseException:  # an interrupt: the pipe is in the middle of a message
            self._kill()
            raise

    def stop(self) -> None:
        """End the process; waits for no compilation that may be running."""
        process, self.process = self.process, None
        if process is not None:
            _close(process)
            process.kill()
            process.wait()
        if self.stderr is not None:
            self.stderr.close()
            self.stderr = None

    def _running(self) -> subprocess.Popen[bytes]:
        if self.process is None or self.process.poll() is not None:
            self.stop()
            self._start()
        assert self.process is not None
        return self.process

    def _start(self) -> None:
        # A file and not a pipe: nobody has to read it while the compiler runs, and it survives the crash.
        self.stderr = tempfile.TemporaryFile(prefix="turbine-lite-worker-")  # noqa: SIM115  # stop() closes it
        environment = dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join(_search_path())
        try:
            # -P: a file of the user's working directory must not stand in for a module of ours.
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "turbine_lite.compiler.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.stderr,
                env=environment,
            )
            if self.nice:
                os.setpriority(os.PRIO_PROCESS, self.process.pid, os.getpriority(os.PRIO_PROCESS, 0) + self.nice)
            write_message(_stdin(self.process), (os.getpid(), self.global_flags))
        except OSError as error:
            raise CompilationError(f"the compiler process could not be started: {error}", stage="compile") from error

    @staticmethod
    def _exchange(process: subprocess.Popen[bytes], request: Work[_T], timeout: float) -> _T:
        write_message(_stdin(process), request)
        assert process.stdout is not None
        deadline = time.monotonic() + timeout
        poll = select.poll()  # not select.select, which fails on descriptors over 1023
        poll.register(process.stdout, select.POLLIN)
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise TimeoutError
        response: _T = read_message(process.stdout)  # type: ignore[arg-type]  # a BufferedReader is a BinaryIO
        return response

    def _kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            _close(self.process)
            self.process = None

    def _printed_since(self, offset: int) -> str:
        if self.stderr is None:
            return ""
        self.stderr.seek(offset)
        return self.stderr.read().decode(errors="replace")


def _stdin(process: subprocess.Popen[bytes]) -> Any:
    assert process.stdin is not None
    return process.stdin


def _close(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout):
        try:
            if stream is not None:
                stream.close()
        except OSError:  # unflushed bytes for a process that is gone
            pass


def _how_it_ended(process: subprocess.Popen[bytes]) -> str:
    code = process.returncode
    if code is not None and code < 0:
        try:
            return signal.Signals(-code).name
        except ValueError:
            return f"signal {-code}"
    return f"exit status {code}"


def _forget_in_child() -> None:
    # The child of a fork shares the parent's pipes: it must neither use nor end the parent's workers.
    global _changed
    _changed = threading.Condition()
    for worker in (*_idle, *_busy):
        if worker.process is not None:
            for stream in (worker.process.stdin, worker.process.stdout):
                # The raw file, since closing the buffered one would send what another thread was about to write.
                if stream is not None:
                    stream.raw.close()  # type: ignore[attr-defined]
            worker.process.returncode = 0  # Popen's finalizer must not wait for a process that is no child of ours
    _idle.clear()
    _busy.clear()


atexit.register(shut_down, for_good=True)
os.register_at_fork(after_in_child=_forget_in_child)
