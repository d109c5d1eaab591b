"""Custom backward passes: which of the values that `bprop` is given it reads, and which of them the class says it keeps.

`bprop` is given the inputs of `construct`, then its output, then the gradient of the output; positions count from 0 in that order.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Needed:
    """Positions that a `bprop` reads, of `total` values."""

    needed: frozenset[int]
    total: int


@dataclass(frozen=True, slots=True)
class Stated:
    """Positions that a class keeps, and the line that says so."""

    indices: frozenset[int]
    line: int


def minimal_inputs(owner: ast.ClassDef, method: ast.FunctionDef) -> Needed | None:
    """What a `bprop` needs at least; None where it cannot be told (values are handed on as a whole, or indexed by a variable)."""
    construct = next((item for item in owner.body if isinstance(item, ast.FunctionDef) and item.name == "construct"), None)
    names = [argument.arg for argument in method.args.args if argument.arg != "self"]
    if method.args.vararg is None:
        used = {node.id for statement in method.body for node in ast.walk(statement) if isinstance(node, ast.Name)}
        return Needed(frozenset(index for index, name in enumerate(names) if name in used), len(names)) if len(names) >= 2 else None
    if construct is None or construct.args.vararg is not None:
        return None
    total = len([argument for argument in construct.args.args if argument.arg != "self"]) + 2
    indices = _indices(method, method.args.vararg.arg, total - len(names))
    if indices is None:
        return None
    used = {node.id for statement in method.body for node in ast.walk(statement) if isinstance(node, ast.Name)}
    return Needed(
        frozenset({*(index + len(names) for index in indices), *(i for i, name in enumerate(names) if name in used)}), total
    )


def used_inputs(owner: ast.ClassDef) -> Stated | None:
    """The list in `self.used_bprop_inputs`, if the class has one that is made of numbers."""
    for node in ast.walk(owner):
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Attribute) and target.attr == "used_bprop_inputs" for target in node.targets
        ):
            try:
                values = ast.literal_eval(node.value)
            except ValueError:
                return None
            if isinstance(values, (list, tuple)) and all(isinstance(value, int) for value in values):
                return Stated(frozenset(values), node.lineno)
    return None


def _indices(method: ast.FunctionDef, name: str, count: int) -> set[int] | None:
    """Positions of `*args` that are read by number; None if it is used in any other way."""
    found: set[int] = set()
    subscripted: set[ast.AST] = set()
    for node in ast.walk(method):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == name:
            try:
                index = ast.literal_eval(node.slice)
            except ValueError:
                return None
            if not isinstance(index, int) or not -count <= index < count:
                return None
            found.add(index % count)
            subscripted.add(node.value)
    uses = [node for node in ast.walk(method) if isinstance(node, ast.Name) and node.id == name]
    return found if all(node in subscripted for node in uses) else None
