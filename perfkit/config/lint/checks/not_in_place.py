"""A sum that is written to new memory in every step."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.code import dotted, step_loops
from perfkit.config.lint.subjects import Code
from perfkit.core.texts import say

NAMES = ("grad", "acc", "total", "ema", "running", "moment")


def _check(code: Code) -> Iterator[Found]:
    for loop in step_loops(code):
        for statement in loop.body:
            for node in ast.walk(statement):
                if isinstance(node, ast.Assign) and len(node.targets) == 1 and _adds_to(node):
                    name = dotted(node.targets[0])
                    yield Found(
                        message=say("{code} makes a new tensor", code=ast.unparse(node)[:80]),
                        line=node.lineno,
                        fix=f"{name}.add_(...)",
                    )


def _adds_to(node: ast.Assign) -> bool:
    name, value = dotted(node.targets[0]), node.value
    if not name or not any(part in name.lower() for part in NAMES):
        return False
    return (
        isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add) and dotted(value.left) == name and bool(dotted(value.right))
    )


CHECK = Check(
    name="not-in-place",
    title="A sum makes a new tensor in every step",
    kind="code",
    severity="information",
    check=_check,
    why="Every step allocates a tensor of the same size.",
    fix="use add_, unless autograd needs the old value",
    bad="""for batch in dataset:
    new = train_step(batch)
    grad = grad + new
""",
    repair=("    grad = grad + new", "    grad.add_(new)"),
    example="train.py",
)
