"""``turbine_lite.save`` and ``load``: programs in one file, which run without any compiler."""
