"""What can be seen of a program on its way through IREE's compiler, by the names of ``TURBINE_LITE_DUMP_STAGES``."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["ALL", "DEFAULT_STAGES", "LLVM_STAGES", "PHASES", "STAGES", "chosen_stages", "file_of"]

ALL = "all"

# IREE's compilation phases, in the order in which they are reached.
PHASES = {
    "input": "input dialects converted",
    "abi": "entry points as the runtime calls them",
    "preprocessing": "after preprocessing",
    "global-optimization": "layouts, transposes and constants moved across the program",
    "dispatch-creation": "operators fused into dispatches",
    "flow": "dispatches outlined, tensors between them",
    "stream": "buffers, their lifetimes, and the order of the work",
    "executable-sources": "the kernels before they are translated",
    "executable-configurations": "the kernels with tile sizes and strategies",
    "executable-targets": "the kernels in the LLVM dialect",
    "hal": "calls of the runtime's hardware layer, kernels as binaries",
    "vm": "the program of the runtime's virtual machine",
}

# From a stage to how the names of the files end that IREE writes for it.
LLVM_STAGES = {"llvm-ir": ".optimized.ll", "assembly": ".s"}

# All of them, with what each shows.
STAGES = {
    "iree-input": "after torch-to-iree: linalg on tensors",
    **PHASES,
    "llvm-ir": "the kernels as LLVM has optimised them",
    "assembly": "the kernels as machine code, in text",
}

DEFAULT_STAGES = ("iree-input", "executable-sources")


def chosen_stages(names: Iterable[str]) -> tuple[str, ...]:
    """The stages in their order; ``"all"`` stands for each of them."""
    names = tuple(names)
    return tuple(stage for stage in STAGES if stage in names or ALL in names)


def file_of(stage: str) -> str:
    """The file name of a stage in a dump."""
    return stage + LLVM_STAGES.get(stage, ".mlir").removeprefix(".optimized")
