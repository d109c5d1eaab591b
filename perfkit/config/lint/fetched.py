"""Fetched: whether a value of a user's code is on the host already, so that asking for it again waits for nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfkit.config.lint.code import called_name
from perfkit.config.lint.subjects import Code

METHODS = frozenset({"asnumpy", "item", "tolist", "cpu", "numpy"})
CASTS = frozenset({"float", "int", "bool"})
FARTHEST = 6
"""Steps from a name to what it was given, through arguments and results, that are followed."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def is_fetched(code: Code, value: ast.expr, farthest: int = FARTHEST) -> bool:
    """Whether an expression is a fetched value: what a fetch gave, under whatever name and through functions of the same file."""
    if farthest == 0:
        return False
    if isinstance(value, ast.Call):
        if called_name(value) in (METHODS if isinstance(value.func, ast.Attribute) else CASTS):
            return True
        results = [found for function in _named(code, called_name(value)) for found in _results(code, function)]
        return bool(results) and all(found is not None and is_fetched(code, found, farthest - 1) for found in results)
    if not isinstance(value, ast.Name):
        return False
    owner = _owner(code, value)
    if (given := _given_before(code, value, owner)) is not None:
        return is_fetched(code, given, farthest - 1)
    if owner is None or _is_given(code, value, owner):
        return False
    passed = [found for call in _calls(code, owner.name) for found in [_passed(call, owner, value.id)]]
    return bool(passed) and all(found is not None and is_fetched(code, found, farthest - 1) for found in passed)


def _owner(code: Code, node: ast.AST) -> Function | None:
    return next((around for around in code.around(node) if isinstance(around, Function)), None)


def _named(code: Code, name: str) -> list[Function]:
    return [function for function in code.nodes(ast.FunctionDef, ast.AsyncFunctionDef) if function.name == name]


def _results(code: Code, function: Function) -> Iterator[ast.expr | None]:
    """What a function returns, in each of its own returns."""
    for item in ast.walk(function):
        if isinstance(item, ast.Return) and _owner(code, item) is function:
            yield item.value


def _assigned(code: Code, name: ast.Name, owner: Function | None) -> list[ast.Assign]:
    """The assignments to a name in its own function."""
    return [
        item
        for item in code.nodes(ast.Assign)
        if _owner(code, item) is owner and any(isinstance(one, ast.Name) and one.id == name.id for one in item.targets)
    ]


def _given_before(code: Code, name: ast.Name, owner: Function | None) -> ast.expr | None:
    """What a name was given last before it is asked for, if that holds wherever it is asked: in a block around it."""
    before = [item for item in _assigned(code, name, owner) if item.lineno < name.lineno]
    last = max(before, key=lambda item: item.lineno, default=None)
    return last.value if last is not None and code.parents[last] in code.around(name) else None


def _is_given(code: Code, name: ast.Name, owner: Function) -> bool:
    """Whether anything in a function gives the name another value than that which was passed to it."""
    return any(
        isinstance(found, ast.Name) and found.id == name.id and isinstance(found.ctx, ast.Store) and _owner(code, found) is owner
        for found in code.nodes(ast.Name)
    )


def _calls(code: Code, name: str) -> Iterator[ast.Call]:
    return (call for call in code.nodes(ast.Call) if called_name(call) == name)


def _passed(call: ast.Call, function: Function, name: str) -> ast.expr | None:
    """What a call passes for a parameter of a function; None where that is not plain."""
    if (by_name := next((item.value for item in call.keywords if item.arg == name), None)) is not None:
        return by_name
    names = [item.arg for item in (*function.args.posonlyargs, *function.args.args)]
    if isinstance(call.func, ast.Attribute) and names[:1] == ["self"]:
        names = names[1:]
    place = names.index(name) if name in names else len(call.args)
    plain = place < len(call.args) and not any(isinstance(item, ast.Starred) for item in call.args[: place + 1])
    return call.args[place] if plain else None
