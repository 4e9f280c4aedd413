"""MLIR to VMFB: flags, the compiler process, retries."""
