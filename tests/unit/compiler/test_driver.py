"""What is tried when a set of flags fails."""

from __future__ import annotations

import pytest

from turbine_lite.compiler import driver
from turbine_lite.compiler.flags import Traits
from turbine_lite.compiler.pipeline import Response
from turbine_lite.errors import CompilationError, CompilerCrashError, CompilerTimeoutError
from turbine_lite.options import Options


@pytest.fixture
def attempts(monkeypatch):
    """The time limits of the attempts; all but the last set of flags never end."""
    limits: list[float] = []

    def run(request, flags, timeout, *, in_background):
        limits.append(timeout)
        if len(limits) < 3:
            raise CompilerTimeoutError("too long", stage="compile")
        return Response(b"vmfb", None, (), {}, {})

    monkeypatch.setattr(driver, "compile_in_worker", run)
    return limits


def test_flags_that_do_not_end_are_followed_by_milder_ones(attempts):
    compiled = driver.compile_to_vmfb(
        b" " * 2000, Options(compile_timeout=600.0), Traits(keep_f64=False, dynamic=False)
    )
    assert compiled.flags.name == "mild"
    assert attempts == [62, 62, 600]


def test_the_background_has_more_patience(attempts):
    options = Options(compile_timeout=900.0, compile="background")
    driver.compile_to_vmfb(b" " * 2000, options, Traits(keep_f64=False, dynamic=False))
    assert attempts == [620, 620, 900]


def test_no_attempt_takes_longer_than_the_user_allows(attempts):
    with pytest.raises(CompilerTimeoutError):
        driver.compile_to_vmfb(b"", Options(compile_timeout=5.0), Traits(keep_f64=False, dynamic=False))
    assert attempts == [5]


def test_the_first_failure_is_the_one_told(monkeypatch):
    errors = [CompilerCrashError("first", stage="compile"), CompilerTimeoutError("second", stage="compile")]

    def run(request, flags, timeout, *, in_background):
        raise errors.pop(0) if errors else CompilerCrashError("last", stage="compile")

    monkeypatch.setattr(driver, "compile_in_worker", run)
    with pytest.raises(CompilerCrashError, match="first"):
        driver.compile_to_vmfb(b"", Options(), Traits(keep_f64=False, dynamic=False))


def test_a_failure_has_the_stages_that_were_reached(monkeypatch):
    response = Response(None, "compile", (), {"flow": "module {}"}, {})
    monkeypatch.setattr(driver, "compile_in_worker", lambda *args, **kwargs: response)
    with pytest.raises(CompilationError) as caught:
        driver.compile_to_vmfb(b"", Options(), Traits(keep_f64=False, dynamic=False))
    assert caught.value.stages == {"flow": "module {}"}
    assert caught.value.located(dump_dir="d", command=None).stages == {"flow": "module {}"}
