"""IREE compiler flags: what turbine_lite passes, and why."""

from __future__ import annotations

import dataclasses

from turbine_lite.options import Options

__all__ = ["STACK_BYTES", "FlagSet", "Traits", "flag_sets"]

# IREE refuses dispatches that need more stack than this. Its default of 32 KiB rejects BERT. The runtime's worker
# threads must have stacks to match, see turbine_lite.runtime.device.
STACK_BYTES = 1 << 18

# A compiler session refuses these; a compiler process takes them. The in-process compiler goes without them.
# Without it head reshapes and transposes are folded into the projections of attention, which then stop being
# matmuls: measured 180 ms -> 110 ms on a ViT.
_GLOBAL_FLAGS = ("--iree-global-opt-propagate-transposes=false",)

_BASE_FLAGS = (
    "--iree-hal-target-backends=llvm-cpu",
    # Without a CPU name IREE generates SSE2 code: the largest single difference of all flags.
    "--iree-llvmcpu-target-cpu={cpu}",
    # Never to be switched off (--iree-llvmcpu-fail-on-out-of-bounds-stack-allocation=false): over dynamic shapes a
    # dispatch may ask for 2^56 bytes, and then the user's process dies of a bus error at run time.
    f"--iree-llvmcpu-stack-allocation-limit={STACK_BYTES}",
)

_FAST_FLAGS = (
    "--iree-opt-level={opt_level}",
    # Convolutions as matmuls: ResNet-18 336 ms -> 39 ms.
    "--iree-global-opt-use-im2col-for-convs",
)

# Else loops whose length is no multiple of the tile's are masked, and AVX2's masked stores take many times as long: a
# sum of 576,000 elements 650 us -> 175 us, Whisper's encoder 4.1 s -> 0.75 s.
_FAST_GLOBAL_FLAGS = ("--iree-llvmcpu-vector-pproc-strategy=peel",)

# Matmuls on packed tiles with micro-kernels: 80 ms -> 29 ms for 1024x1024x1024 on one core. Not for batched matmuls
# over dynamic dimensions: ``(2, 12, n, n) @ (2, 12, n, 64)`` comes out wrong.
_TILING_FLAGS = (
    "--iree-opt-data-tiling",
    "--iree-dispatch-creation-data-tiling",
    "--iree-llvmcpu-enable-ukernels=mmt4d",
)

# Aggressive fusion over dynamic dimensions makes programs that write outside of their results (batch norm in training
# with all four sizes dynamic), or that need a whole row of unknown length on the stack. At O1 it is off by default.
_UNFUSED_FLAGS = ("--iree-dispatch-creation-enable-aggressive-fusion=false",)

# What is computed element by element and read by several is computed together with one of its readers. What that one
# skips (a 1x1 convolution or pooling with stride 2 and more than one image), IREE 3.13 then does not compute: the other
# readers, or the caller, get whatever was in memory.
_ONE_READER_FLAGS = ("--iree-dispatch-creation-fuse-multi-use=false",)

# O3 has produced invalid IR on graphs that O1 compiles, and data tiling has its own failures.
_MILD_FLAGS = ("--iree-opt-level=O1",)

# IREE refuses dispatches that would be compiled to very large vectors; slow code is better than none.
_MILD_GLOBAL_FLAGS = ("--iree-llvmcpu-fail-on-large-vector=false",)


@dataclasses.dataclass(frozen=True)
class FlagSet:
    """Flags of one attempt. ``process_only`` are those that a compiler session refuses."""

    name: str
    session: tuple[str, ...]
    process_only: tuple[str, ...]

    def of_process(self) -> tuple[str, ...]:
        """All flags, as a compiler process is started with.

        Not split between process and session: once IREE's process-wide flags are set, flags of a session take effect
        in part only, and the program is not the one that iree-compile makes.
        """
        return (*self.process_only, *self.session)

    def command_line(self) -> tuple[str, ...]:
        """The same choice as flags of the iree-compile program."""
        return ("--iree-input-type=torch", *self.of_process())


@dataclasses.dataclass(frozen=True)
class Traits:
    """What flags depend on in a program.

    Attributes:
        keep_f64: it has float64 tensors. Then demotion, IREE's default, would give wrong results; otherwise it is
            wanted, because float64 scalars computed on the host side do not compile.
        dynamic: some shape is not known before a call.
        batched_matmul: there is one.
        skips_elements: something reads every n-th element of rows or columns and nothing between them.
    """

    keep_f64: bool
    dynamic: bool
    batched_matmul: bool = False
    skips_elements: bool = False


def flag_sets(options: Options, traits: Traits) -> tuple[FlagSet, ...]:
    """The sets to try in order; a later one is milder. ``options.compile_flags`` replace flags of the same name."""
    readers = _ONE_READER_FLAGS if traits.skips_elements else ()
    base = (*_BASE_FLAGS, f"--iree-input-demote-f64-to-f32={'false' if traits.keep_f64 else 'true'}", *readers)
    tiling = () if traits.dynamic and traits.batched_matmul else _TILING_FLAGS
    fast = _flag_set("fast", (*base, *_FAST_FLAGS, *tiling), _GLOBAL_FLAGS + _FAST_GLOBAL_FLAGS, options)
    unfused_flags = (*base, *_FAST_FLAGS, *tiling, *_UNFUSED_FLAGS)
    unfused = _flag_set("unfused", unfused_flags, _GLOBAL_FLAGS + _FAST_GLOBAL_FLAGS, options)
    mild = _flag_set("mild", (*base, *_MILD_FLAGS), _GLOBAL_FLAGS + _MILD_GLOBAL_FLAGS, options)
    return (unfused, mild) if traits.dynamic else (fast, unfused, mild)


def _flag_set(name: str, session: tuple[str, ...], process_only: tuple[str, ...], options: Options) -> FlagSet:
    replaced = {flag.partition("=")[0] for flag in options.compile_flags}
    values = {"cpu": options.target_cpu, "opt_level": options.opt_level}
    kept = [flag.format_map(values) for flag in session if flag.partition("=")[0] not in replaced]
    kept_process = [flag for flag in process_only if flag.partition("=")[0] not in replaced]
    return FlagSet(name, (*kept, *options.compile_flags), tuple(kept_process))
