"""``turbine_lite.export``: programs that leave this process as MLIR."""
