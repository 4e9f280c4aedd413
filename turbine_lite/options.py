"""Options of the backend: one frozen dataclass, strict about names, types and values.

Where a value comes from, strongest first:

1. ``torch.compile(..., options={...})``
2. the named set of options that ``torch.compile(..., mode=...)`` selects
3. the option's environment variable (the ``env`` entry of each field; empty counts as unset)
4. the default
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from turbine_lite.compiler.stages import ALL, DEFAULT_STAGES, STAGES
from turbine_lite.errors import OptionError

__all__ = ["MODES", "Options"]


def _option(
    default: Any,
    doc: str,
    *,
    affects_code: bool,
    choices: tuple[str, ...] = (),
    env: str | None = None,
    check: Callable[[Any], str | None] | None = None,
) -> Any:
    return dataclasses.field(
        default=default,
        metadata={"doc": doc, "affects_code": affects_code, "choices": choices, "env": env, "check": check},
    )


def _positive(value: float) -> str | None:
    return None if value > 0 else "a number above 0"


def _not_negative(value: int) -> str | None:
    return None if value >= 0 else "0 or above"


def _below_2_gib(value: int) -> str | None:
    return None if 0 <= value < 1 << 31 else "0 or above, and less than 2 GiB"


def _verify_value(value: bool | str) -> str | None:
    return None if value in (True, False, "error") else "True, False or 'error'"


def _all_flags(value: tuple[str, ...]) -> str | None:
    return None if all(flag.startswith("--") for flag in value) else "flags that start with '--'"


def _known_stages(value: tuple[str, ...]) -> str | None:
    return None if {*value} <= {ALL, *STAGES} else f"of {ALL}, {', '.join(STAGES)}"


@dataclasses.dataclass(frozen=True)
class Options:
    """What a user can choose for one compiled function. Each field is documented where it is declared."""

    fallback: str = _option(
        "eager",
        "What happens to a part of the graph that cannot be compiled: run it in eager with one warning, or raise.",
        affects_code=False,
        choices=("eager", "error"),
    )
    compiler: str = _option(
        "worker",
        "Where the IREE compiler runs: in a process of its own (its faults cannot reach yours) or, to debug, in yours.",
        affects_code=False,
        choices=("worker", "in-process"),
    )
    compile: str = _option(
        "blocking",
        "Wait for the compiler at the first call, or run in eager until the compiler is done (background); "
        "turbine_lite.wait_for_compilation() waits for all. Not with autotune.",
        affects_code=False,
        choices=("blocking", "background"),
    )
    compile_timeout: float = _option(
        600.0,
        "Seconds after which a compilation is killed and the graph falls back; fast flags give way sooner.",
        affects_code=False,
        check=_positive,
    )
    driver: str = _option(
        "auto",
        "IREE's CPU driver: one thread (local-sync), as many as torch has (local-task), or the faster (auto).",
        affects_code=False,
        choices=("auto", "local-sync", "local-task"),
    )
    opt_level: str = _option("O3", "IREE's optimisation level.", affects_code=True, choices=("O0", "O1", "O2", "O3"))
    target_cpu: str = _option(
        "host", "LLVM name of the CPU to compile for, or 'host' for this machine's.", affects_code=True
    )
    pack_parameters: bool = _option(
        True,
        "In inference, load programs with the model's parameters and keep them in the layout that matmuls want; costs "
        "memory for a second copy of these. False passes parameters on each call.",
        affects_code=True,
    )
    retain_bytes: int = _option(
        256 << 20,
        "With glibc: how much freed memory at the end of the heap this process keeps for later calls, eager's too, "
        "instead of giving it back to the system after each; 0 leaves malloc as it is.",
        affects_code=False,
        check=_below_2_gib,
    )
    extern: str = _option(
        "auto",
        "Leave operators to kernels of PyTorch's libraries: those that are slower in IREE by measurement (auto), none, "
        "or, to experiment, all that have such a kernel.",
        affects_code=True,
        choices=("auto", "none", "all"),
    )
    autotune: bool = _option(
        False,
        "Build several versions of each graph (kernels, drivers, flags, eager) and keep the one that is the fastest on "
        "the first call's arguments.",
        affects_code=True,
    )
    autotune_seconds: float = _option(
        120.0,
        "With autotune, no further version of a graph is begun after so many seconds, nor a further round of timing.",
        affects_code=False,
        check=_positive,
    )
    compile_flags: tuple[str, ...] = _option(
        (), "Further iree-compile flags, after turbine_lite's own.", affects_code=True, check=_all_flags
    )
    disabled_ops: tuple[str, ...] = _option(
        (), "Operators that must run in eager, such as 'aten.gelu' or 'aten.gelu.default'.", affects_code=True
    )
    min_block_size: int = _option(
        3,
        "In a graph that is cut, parts of fewer operators than this, and without a large matmul or convolution, run in "
        "eager: calling IREE would cost more.",
        affects_code=True,
        check=_positive,
    )
    cache: bool = _option(
        True,
        "Keep compiled programs in TURBINE_LITE_CACHE_DIR, or the user's cache directory, and look there first.",
        affects_code=False,
    )
    cache_bytes: int = _option(
        1 << 31,
        "How large the cache may grow; then what was not used for the longest time goes.",
        affects_code=False,
        check=_positive,
    )
    cache_tag: str = _option(
        "", "Programs with different tags are kept apart, such as for an experiment.", affects_code=False
    )
    cache_verify: bool = _option(
        False,
        "Compile what the cache has again, and replace it with one warning where the result is another.",
        affects_code=False,
    )
    progress: bool = _option(
        True, "Show on a terminal what takes more than two seconds; elsewhere nothing is shown.", affects_code=False
    )
    dump_dir: str | None = _option(
        None, "Directory to write every stage of every compiled graph to.", affects_code=False, env="TURBINE_LITE_DUMP"
    )
    dump_stages: tuple[str, ...] = _option(
        DEFAULT_STAGES,
        f"With dump_dir, the stages of IREE's compiler to write: {ALL}, or of {', '.join(STAGES)}.",
        affects_code=False,
        check=_known_stages,
    )
    verify: bool | str = _option(
        False,
        "Compare each compiled graph's first call with eager, name the operator at fault, and go on in eager (True) "
        "or raise VerificationError ('error').",
        affects_code=False,
        check=_verify_value,
    )
    verify_every: int = _option(
        0,
        "With verify, compare every n-th call also; 0 compares the first alone.",
        affects_code=False,
        check=_not_negative,
    )
    dump_weights: bool = _option(
        False, "Write large constants in full in the dumped text instead of eliding them.", affects_code=False
    )

    @classmethod
    def resolve(
        cls,
        options: Mapping[str, Any] | None = None,
        mode: str | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Options:
        """Combine the given options, mode and environment.

        Raises:
            OptionError: for an unknown name or mode, a wrong type, or a value outside the allowed ones.
        """
        if options is not None and not isinstance(options, Mapping):
            raise OptionError(f"options must be a dict, not {type(options).__name__}: {options!r}")
        values = _from_environment(cls, os.environ if environ is None else environ)
        values.update(_from_mode(mode))
        fields = _fields(cls)
        for name, value in (options or {}).items():
            if name not in fields:
                raise OptionError(_unknown("option", name, fields))
            values[name] = _checked(fields[name], value, f"option {name!r}")
        resolved = cls(**values)
        if resolved.autotune and resolved.compile == "background":
            raise OptionError(
                "option 'compile' cannot be 'background' with autotune, which times versions on the first call's "
                "arguments: choose one of the two"
            )
        return resolved

    @classmethod
    def parse(cls, name: str, text: str, where: str) -> Any:
        """The value of one option that a text stands for, as in an environment variable.

        Raises:
            OptionError: there is no such option, or the text is no value of it; ``where`` says whose.
        """
        fields = _fields(cls)
        if name not in fields:
            raise OptionError(_unknown("option", name, fields))
        where = f"{where} {name}"
        return _checked(fields[name], _parse(fields[name], text, where), where)

    @classmethod
    def of_mode(cls, mode: str) -> dict[str, Any]:
        """The options that a mode stands for.

        Raises:
            OptionError: there is no such mode.
        """
        return _from_mode(mode)

    @classmethod
    def table(cls) -> list[tuple[str, str, str, str]]:
        """(name, default, environment variable, description) of each option, for documentation."""
        return [
            (name, repr(field.default), _env_name(field), _description(field)) for name, field in _fields(cls).items()
        ]


MODES: dict[str, dict[str, Any]] = {
    # The default set: large graphs on all threads, small ones on the caller's.
    "default": {},
    # Waking worker threads costs more than a small graph takes to run.
    "reduce-overhead": {"driver": "local-sync"},
    # For models that are being written: no code that packs parameters, no second driver to try.
    "fast-compile": {"pack_parameters": False, "driver": "local-sync"},
    # Takes several times as long to compile. torch.compile has the longer name, too; graphs of CUDA mean nothing here.
    "max-autotune": {"autotune": True},
    "max-autotune-no-cudagraphs": {"autotune": True},
}


_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off")


def _fields(cls: type[Options]) -> dict[str, dataclasses.Field[Any]]:
    return {field.name: field for field in dataclasses.fields(cls)}


def _env_name(field: dataclasses.Field[Any]) -> str:
    return str(field.metadata["env"] or f"TURBINE_LITE_{field.name.upper()}")


def _description(field: dataclasses.Field[Any]) -> str:
    choices = field.metadata["choices"]
    return str(field.metadata["doc"]) + (f" One of: {', '.join(choices)}." if choices else "")


def _unknown(kind: str, name: Any, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(str(name), known, n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    return f"unknown {kind} {name!r}{hint}; known: {', '.join(sorted(known))}"


def _from_mode(mode: str | None) -> dict[str, Any]:
    if mode is None:
        return {}
    if mode not in MODES:
        raise OptionError(_unknown("mode", mode, MODES))
    return dict(MODES[mode])


def _from_environment(cls: type[Options], environ: Mapping[str, str]) -> dict[str, Any]:
    values = {}
    for name, field in _fields(cls).items():
        text = environ.get(_env_name(field), "")
        if text:
            where = f"environment variable {_env_name(field)}"
            values[name] = _checked(field, _parse(field, text, where), where)
    return values


def _accepted_types(field: dataclasses.Field[Any]) -> tuple[Any, ...]:
    hint = typing.get_type_hints(Options)[field.name]
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return typing.get_args(hint)
    return (typing.get_origin(hint) or hint,)


def _parse(field: dataclasses.Field[Any], text: str, where: str) -> Any:
    """The value that an environment variable's text stands for; lists are separated by commas."""
    accepted = _accepted_types(field)
    if bool in accepted and (str not in accepted or text.lower() in _TRUE + _FALSE):
        if text.lower() not in _TRUE + _FALSE:
            raise OptionError(f"{where} must be one of {', '.join(_TRUE + _FALSE)}, not {text!r}")
        return text.lower() in _TRUE
    for number in (int, float):
        if number in accepted:
            try:
                return number(text)
            except ValueError:
                kind = "an integer" if number is int else "a number"
                raise OptionError(f"{where} must be {kind}, not {text!r}") from None
    if tuple in accepted:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    return text


def _checked(field: dataclasses.Field[Any], value: Any, where: str) -> Any:
    accepted = _accepted_types(field)
    if float in accepted and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if tuple in accepted and isinstance(value, list):
        value = tuple(value)
    if not isinstance(value, accepted) or (isinstance(value, bool) and bool not in accepted):
        names = " or ".join("None" if t is types.NoneType else t.__name__ for t in accepted)
        raise OptionError(f"{where} must be of type {names}, not {type(value).__name__}: {value!r}")
    if isinstance(value, tuple) and not all(isinstance(item, str) for item in value):
        raise OptionError(f"{where} must hold only strings, not {value!r}")
    choices = field.metadata["choices"]
    if choices and value not in choices:
        raise OptionError(f"{where} must be one of {', '.join(choices)}, not {value!r}")
    expected = field.metadata["check"] and field.metadata["check"](value)
    if expected:
        raise OptionError(f"{where} must be {expected}, not {value!r}")
    return value
