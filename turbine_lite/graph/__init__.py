"""FX graph to FX graph: decompositions, rewrites, support and partition."""
