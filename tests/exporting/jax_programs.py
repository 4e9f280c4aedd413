"""What JAX writes, and what it reads: a program of its own, for once JAX runs it warns of every fork of the process.

``jax_programs.py write FOLDER`` leaves NAME.mlir (text), NAME.bin (portable artifact) and NAME.npz (arguments and
results) of each program; ``jax_programs.py read FILE`` parses and verifies MLIR text with JAX's bindings.
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np


def mlp(x, w1, b1, w2):
    return jax.nn.gelu(x @ w1 + b1) @ w2


def conv_net(x, w1, w2):
    layout = {"dimension_numbers": ("NHWC", "HWIO", "NHWC")}
    y = jax.nn.relu(jax.lax.conv_general_dilated(x, w1, (1, 1), "SAME", **layout))
    y = jax.lax.reduce_window(y, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    y = jax.lax.conv_general_dilated(y, w2, (2, 2), "SAME", **layout)
    return y.mean((1, 2)), jnp.argmax(y, -1)


def transformer_block(x, wq, wk, wv, wo, scale):
    h = (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5) * scale
    q, k, v = ((h @ w).reshape(2, 10, 4, 8).transpose(0, 2, 1, 3) for w in (wq, wk, wv))
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / 8**0.5
    scores = jnp.where(jnp.tril(jnp.ones((10, 10), bool)), scores, -1e9)
    mixed = jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, -1), v)
    return x + mixed.transpose(0, 2, 1, 3).reshape(2, 10, 32) @ wo


def scan(x):
    return jax.lax.scan(lambda carry, step: (carry * 0.5 + step, carry), jnp.zeros(3), x)


def dynamic_pool(x):
    layout = {"dimension_numbers": ("NHWC", "HWIO", "NHWC")}
    y = jax.lax.conv_general_dilated(x, jnp.ones((3, 3, 3, 2)), (1, 1), "SAME", **layout)
    y = jax.lax.reduce_window(y, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    return jax.lax.reduce_window(y, 0.0, jax.lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def dynamic_attention(x):
    q = x.reshape(x.shape[0], x.shape[1], 2, 4).transpose(0, 2, 1, 3)
    mixed = jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(jnp.einsum("bhqd,bhkd->bhqk", q, q), -1), q)
    y = mixed.transpose(0, 2, 1, 3).reshape(x.shape)
    return y / y.sum(-1, keepdims=True)


# Of those with dynamic sizes: the symbolic shape, and the shapes they are called with.
SYMBOLIC = {
    dynamic_pool: ("b, 16, 16, 3", [(1, 16, 16, 3), (3, 16, 16, 3)]),
    dynamic_attention: ("b, s, 8", [(1, 1, 8), (2, 5, 8)]),
}
SHAPES = {
    mlp: [(4, 8), (8, 16), (16,), (16, 3)],
    conv_net: [(2, 16, 16, 3), (3, 3, 3, 8), (3, 3, 8, 16)],
    transformer_block: [(2, 10, 32), *[(32, 32)] * 4, (32,)],
    scan: [(5, 3)],
}


def write(folder):
    from jax import export

    rng = np.random.default_rng(0)
    for function, shapes in SHAPES.items():
        args = [rng.standard_normal(shape, dtype=np.float32) * 0.3 for shape in shapes]
        exported = export.export(jax.jit(function))(*[jax.ShapeDtypeStruct(arg.shape, arg.dtype) for arg in args])
        path = Path(folder) / function.__name__
        path.with_suffix(".mlir").write_text(exported.mlir_module())
        path.with_suffix(".bin").write_bytes(exported.mlir_module_serialized)
        results = jax.tree.leaves(function(*args))
        arrays = {f"arg{i}": arg for i, arg in enumerate(args)}
        np.savez(path.with_suffix(".npz"), **arrays, **{f"result{i}": np.asarray(r) for i, r in enumerate(results)})
    for function, (symbols, shapes) in SYMBOLIC.items():
        shape = jax.ShapeDtypeStruct(export.symbolic_shape(symbols), np.float32)
        path = Path(folder) / function.__name__
        path.with_suffix(".mlir").write_text(export.export(jax.jit(function))(shape).mlir_module())
        arrays = {}
        for number, shape in enumerate(shapes):
            arrays[f"arg{number}"] = rng.standard_normal(shape, dtype=np.float32)
            results = jax.tree.leaves(function(arrays[f"arg{number}"]))
            arrays |= {f"result{number}_{i}": np.asarray(r) for i, r in enumerate(results)}
        np.savez(path.with_suffix(".npz"), **arrays)


def read(file):
    from jax.interpreters import mlir
    from jaxlib.mlir import ir

    with mlir.make_ir_context():
        if not ir.Module.parse(Path(file).read_text()).operation.verify():
            sys.exit("does not verify")


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[1]](sys.argv[2])
