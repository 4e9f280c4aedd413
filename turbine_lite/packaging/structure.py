"""How a function's arguments and results are nested, in JSON, without torch.

A structure is one of ``["leaf"]``, ``["fixed", value]``, ``["tuple", [...]]``, ``["list", [...]]``,
``["dict", [keys], [...]]`` and ``["namedtuple", name, [fields], [...]]``.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["flatten", "structure_of", "unflatten"]


def structure_of(spec: Any, fixed: Mapping[int, Any]) -> list[Any]:
    """That of a ``torch.utils._pytree.TreeSpec``.

    Args:
        spec: it.
        fixed: leaves that are no arguments or results, by their position, with their value.
    """
    return _structure(spec, fixed, iter(range(spec.num_leaves)))


def _structure(spec: Any, fixed: Mapping[int, Any], positions: Iterator[int]) -> list[Any]:
    if spec.is_leaf():
        position = next(positions)
        return ["fixed", _plain(fixed[position])] if position in fixed else ["leaf"]
    children = [_structure(spec.child(index), fixed, positions) for index in range(spec.num_children)]
    kind, context = spec.type, spec.context
    if kind in (list, tuple):
        return [kind.__name__, children]
    if isinstance(context, list) and len(context) == len(children):  # dictionaries, and the models' output classes
        return ["dict", [str(key) for key in context], children]
    if isinstance(context, type) and hasattr(context, "_fields"):
        return ["namedtuple", context.__name__, list(context._fields), children]
    return ["tuple", children]


def _plain(value: Any) -> Any:
    """A constant of the program as JSON has it; of what JSON has not, there is nothing to compare."""
    return value if value is None or isinstance(value, (bool, int, float, str)) else None


def flatten(structure: Sequence[Any], value: Any, where: str = "the arguments") -> list[Any]:
    """The leaves of a value.

    Raises:
        TypeError: it has another structure.
    """
    kind = structure[0]
    if kind == "leaf":
        return [value]
    if kind == "fixed":
        if structure[1] is not None and value != structure[1]:
            raise TypeError(f"{where} was {structure[1]!r} when the program was saved, and cannot be {value!r}")
        return []
    children = structure[-1]
    if kind == "dict":
        if not isinstance(value, Mapping) or set(map(str, value)) != set(structure[1]):
            given = list(value) if isinstance(value, Mapping) else type(value).__name__
            raise TypeError(f"{where} must be a dictionary of {structure[1]}, not {given}")
        by_name = {str(key): one for key, one in value.items()}
        values = [by_name[key] for key in structure[1]]
        places = [f"{where} [{key!r}]" for key in structure[1]]
    else:
        if not isinstance(value, (list, tuple)) or len(value) != len(children):
            length = len(value) if isinstance(value, (list, tuple)) else type(value).__name__
            raise TypeError(f"{where} must be {len(children)} in a {kind}, not {length}")
        values = list(value)
        places = [f"{where} [{index}]" for index in range(len(values))]
    leaves: list[Any] = []
    for child, one, place in zip(children, values, places, strict=True):
        leaves += flatten(child, one, place)
    return leaves


def unflatten(structure: Sequence[Any], leaves: Iterator[Any]) -> Any:
    """A value of that structure, of the next leaves."""
    kind = structure[0]
    if kind == "leaf":
        return next(leaves)
    if kind == "fixed":
        return structure[1]
    children = [unflatten(child, leaves) for child in structure[-1]]
    if kind == "dict":
        return dict(zip(structure[1], children, strict=True))
    if kind == "namedtuple":
        return namedtuple(structure[1], structure[2])(*children)  # its fields come from a file
    return tuple(children) if kind == "tuple" else children
