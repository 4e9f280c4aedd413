"""What is shown of long compilations, and where."""

from __future__ import annotations

import os
import subprocess
import sys
import termios

import pytest

_SCRIPT = """
import sys, threading
from concurrent.futures import Future
from turbine_lite.progress import show_until_done
futures = [Future(), Future()]
threading.Timer(float(sys.argv[1]) / 2, futures[0].set_result, [1]).start()
threading.Timer(float(sys.argv[1]), futures[1].set_exception, [ValueError()]).start()
show_until_done("compiling graph 1", futures, show=sys.argv[2] == "1")
print(all(future.done() for future in futures))
"""


def _shown(seconds, show, *, terminal):
    """What the script writes to standard error."""
    reader, writer = os.openpty() if terminal else os.pipe()
    if terminal:
        termios.tcsetwinsize(writer, (24, 80))
    command = [sys.executable, "-c", _SCRIPT, str(seconds), str(int(show))]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=writer)
    os.close(writer)
    written = b""
    try:
        while chunk := os.read(reader, 4096):
            written += chunk
    except OSError:  # how Linux says that nobody has the terminal open any more
        pass
    os.close(reader)
    assert process.communicate()[0] == b"True\n"
    return written.decode()


def test_a_terminal_sees_what_takes_long():
    shown = _shown(3.5, True, terminal=True)
    assert "turbine_lite: compiling graph 1" in shown
    assert "1/2" in shown
    assert "00:03" in shown  # seconds from the beginning on
    assert shown.endswith(" \r")  # the line is left empty


@pytest.mark.parametrize(("seconds", "show", "terminal"), [(0.2, True, True), (2.6, False, True), (2.6, True, False)])
def test_nothing_is_shown_of_what_is_quick_or_to_a_file_or_when_asked_not_to(seconds, show, terminal):
    assert _shown(seconds, show, terminal=terminal) == ""
