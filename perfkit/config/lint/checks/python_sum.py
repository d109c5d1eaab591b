"""Python's sum over tensors."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.code import called_name, dotted, hot_nodes
from perfkit.config.lint.subjects import Code
from perfkit.core.texts import say

NAMES = ("loss", "grad", "norm", "tensor", "output", "logit")


FETCHED = ("item", "float", "int", "tolist", "asnumpy", "len")
"""Calls that give numbers of Python or of the host."""


def _is_number(node: ast.expr) -> bool:
    if isinstance(node, (ast.GeneratorExp, ast.ListComp)):
        return _is_number(node.elt)
    return isinstance(node, ast.Call) and called_name(node) in FETCHED


def _numbers(code: Code) -> frozenset[str]:
    """Names of lists to which only numbers are appended: they were fetched from the device before."""
    added: dict[str, bool] = {}
    for call in code.nodes(ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr == "append" and call.args:
            name = dotted(call.func.value)
            added[name] = added.get(name, True) and _is_number(call.args[0])
    return frozenset(name for name, numbers in added.items() if numbers)


def _check(code: Code) -> Iterator[Found]:
    numbers = _numbers(code)
    for node in hot_nodes(code):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "sum" and node.args:
            if _is_number(node.args[0]) or dotted(node.args[0]) in numbers:
                continue
            names = {part.lower() for found in ast.walk(node.args[0]) for part in dotted(found).split(".")}
            if any(
                name.startswith(known) or name.endswith((f"_{known}", f"{known}s", f"{known}es"))
                for name in names
                for known in NAMES
            ):
                yield Found(
                    message=say("{code} launches an operator for every element", code=ast.unparse(node)[:80]), line=node.lineno
                )


CHECK = Check(
    name="python-sum",
    title="Python's sum() adds tensors one by one",
    kind="code",
    severity="warning",
    check=_check,
    why="Each addition is an operator of its own, launched by the host.",
    fix="stack the tensors and sum once on the device",
    bad="""for batch in dataset:
    losses = train_step(batch)
    total = sum(losses)
""",
    repair=("    total = sum(losses)", "    total = mint.sum(mint.stack(losses))"),
    example="train.py",
)
