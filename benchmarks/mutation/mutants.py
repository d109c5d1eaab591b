"""One wrong sign at a time: every place of a module where a number, an operator or a comparison could be another one.

Texts of messages, annotations and decorators are left out: they decide no figure.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Pow: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
EXTREMES = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "argmin": "argmax", "argmax": "argmin"}
SILENT = (ast.JoinedStr, ast.Import, ast.ImportFrom)


@dataclass(frozen=True)
class Mutant:
    """One change of one module: `number` is its place among all of that module."""

    path: Path
    number: int
    line: int
    in_function: bool
    before: str
    after: str
    tree: ast.Module

    def __str__(self) -> str:
        return f"{self.path}:{self.line} #{self.number}  {self.before}  ->  {self.after}"


def number_of(path: Path) -> int:
    """How many mutants a module has."""
    return sum(1 for _ in _places(ast.parse(path.read_text(encoding="utf-8"))))


def mutant(path: Path, number: int) -> Mutant:
    """One of the mutants of a module, numbered in the order of its text."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    place = list(_places(tree))[number]
    before = ast.unparse(place.node)
    place.change(place.node)
    return Mutant(path, number, place.node.lineno, place.in_function, before, ast.unparse(place.node), tree)


@dataclass(frozen=True)
class _Place:
    node: ast.expr
    in_function: bool
    change: Callable[[ast.expr], None]


def _places(node: ast.AST, *, in_function: bool = False) -> Iterator[_Place]:
    if isinstance(node, SILENT):
        return
    if isinstance(node, ast.expr):
        for change in _changes(node):
            yield _Place(node, in_function, change)
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list"):
            continue
        inside = in_function or (isinstance(node, ast.FunctionDef) and field == "body")
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _places(child, in_function=inside)


def _changes(node: ast.expr) -> Iterator[Callable[[ast.expr], None]]:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            yield lambda there: setattr(there, "value", value + 1 if isinstance(value, int) else value * 1.5 + (value == 0))
        case ast.BinOp(op=op) if type(op) in OPERATORS and not _text(node):
            yield lambda there: setattr(there, "op", OPERATORS[type(op)]())
        case ast.Compare(ops=ops):
            for place, operator in enumerate(ops):
                yield partial(_compare, place=place, operator=COMPARISONS[type(operator)]())
        case ast.BoolOp(op=joined):
            yield lambda there: setattr(there, "op", ast.Or() if isinstance(joined, ast.And) else ast.And())
        case ast.Call(func=ast.Name(id=name)) if name in EXTREMES:
            yield lambda there: setattr(there.func, "id", EXTREMES[name])  # type: ignore[attr-defined]
        case ast.Call(func=ast.Attribute(attr=name)) if name in EXTREMES:
            yield lambda there: setattr(there.func, "attr", EXTREMES[name])  # type: ignore[attr-defined]


def _compare(node: ast.expr, place: int, operator: ast.cmpop) -> None:
    assert isinstance(node, ast.Compare)
    node.ops[place] = operator


def _text(node: ast.BinOp) -> bool:
    """Whether an operator joins texts, types or None, which is no arithmetic."""
    return any(
        isinstance(side, ast.JoinedStr) or (isinstance(side, ast.Constant) and not isinstance(side.value, int | float))
        for side in (node.left, node.right)
    )
