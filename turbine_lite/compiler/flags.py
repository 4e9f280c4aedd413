"""IREE compiler flags: what turbine_lite passes, and why."""

from __future__ import annotations

import dataclasses

from turbine_lite.options import Options

__all__ = ["STACK_BYTES", "FlagSet", "flag_sets"]

# IREE refuses dispatches that need more stack than this. Its default of 32 KiB rejects BERT. The runtime's worker
# threads must have stacks to match, see turbine_lite.runtime.device.
STACK_BYTES = 1 << 18

# Process-wide in IREE: a compiler session refuses them, so they are given to the worker when it starts.
# Without it head reshapes and transposes are folded into the projections of attention, which then stop being
# matmuls: measured 180 ms -> 110 ms on a ViT.
_GLOBAL_FLAGS = ("--iree-global-opt-propagate-transposes=false",)

_BASE_FLAGS = (
    "--iree-hal-target-backends=llvm-cpu",
    # Without a CPU name IREE generates SSE2 code: the largest single difference of all flags.
    "--iree-llvmcpu-target-cpu={cpu}",
    f"--iree-llvmcpu-stack-allocation-limit={STACK_BYTES}",
    # A dispatch whose stack use has no provable bound is no reason to refuse the program.
    "--iree-llvmcpu-fail-on-out-of-bounds-stack-allocation=false",
)

_FAST_FLAGS = (
    "--iree-opt-level={opt_level}",
    # Matmuls on packed tiles with micro-kernels: 80 ms -> 29 ms for 1024x1024x1024 on one core.
    "--iree-opt-data-tiling",
    "--iree-dispatch-creation-data-tiling",
    "--iree-llvmcpu-enable-ukernels=mmt4d",
    # Convolutions as matmuls: ResNet-18 336 ms -> 39 ms.
    "--iree-global-opt-use-im2col-for-convs",
)

# O3 has produced invalid IR on graphs that O1 compiles, and data tiling has its own failures.
_MILD_FLAGS = ("--iree-opt-level=O1",)

# IREE refuses dispatches that would be compiled to very large vectors; slow code is better than none.
_MILD_GLOBAL_FLAGS = ("--iree-llvmcpu-fail-on-large-vector=false",)


@dataclasses.dataclass(frozen=True)
class FlagSet:
    """Flags of one attempt: ``session`` for the one compilation, ``process`` for the compiler process."""

    name: str
    session: tuple[str, ...]
    process: tuple[str, ...]

    def command_line(self) -> tuple[str, ...]:
        """The same choice as flags of the iree-compile program."""
        return ("--iree-input-type=torch", *self.process, *self.session)


def flag_sets(options: Options, *, keep_f64: bool) -> tuple[FlagSet, ...]:
    """The sets to try in order; a later one is milder.

    Args:
        options: the user's choices. ``compile_flags`` replace flags of the same name.
        keep_f64: the program has float64 tensors. Then demotion, IREE's default, would give wrong results;
            otherwise it is wanted, because float64 scalars computed on the host side do not compile.
    """
    demotion = (f"--iree-input-demote-f64-to-f32={'false' if keep_f64 else 'true'}",)
    fast = _flag_set("fast", (*_BASE_FLAGS, *demotion, *_FAST_FLAGS), _GLOBAL_FLAGS, options)
    if options.compiler == "in-process":  # a process cannot change its global flags
        return (fast,)
    mild = _flag_set("mild", (*_BASE_FLAGS, *demotion, *_MILD_FLAGS), _GLOBAL_FLAGS + _MILD_GLOBAL_FLAGS, options)
    return (fast, mild)


def _flag_set(name: str, session: tuple[str, ...], process: tuple[str, ...], options: Options) -> FlagSet:
    replaced = {flag.partition("=")[0] for flag in options.compile_flags}
    values = {"cpu": options.target_cpu, "opt_level": options.opt_level}
    kept = [flag.format_map(values) for flag in session if flag.partition("=")[0] not in replaced]
    kept_process = [flag for flag in process if flag.partition("=")[0] not in replaced]
    # The user's flags go to the process too: IREE takes every flag there, in a session only some.
    return FlagSet(name, tuple(kept), (*kept_process, *options.compile_flags))
