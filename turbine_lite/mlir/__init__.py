"""FX graph to MLIR in the torch dialect."""
