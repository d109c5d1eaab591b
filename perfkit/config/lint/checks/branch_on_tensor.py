"""A Python branch that needs the value of a tensor."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.code import dotted, every_nth, step_loops
from perfkit.config.lint.subjects import Code
from perfkit.core.texts import say

NAMES = ("loss", "grad_norm", "global_norm", "overflow", "cond")


def _check(code: Code) -> Iterator[Found]:
    for loop in step_loops(code):
        for statement in loop.body:
            for node in ast.walk(statement):
                if isinstance(node, (ast.If, ast.While)) and _asks_a_tensor(node.test) and not every_nth(code, node):
                    yield Found(
                        message=say("if {code}: waits for the device in every step", code=ast.unparse(node.test)[:70]),
                        line=node.lineno,
                    )


def _asks_a_tensor(test: ast.expr) -> bool:
    if any(isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) for node in ast.walk(test)):
        return False
    if isinstance(test, ast.Compare) and any(isinstance(item, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for item in test.ops):
        return False
    asked = [test.left, *test.comparators] if isinstance(test, ast.Compare) else [test]
    return any(dotted(node).rpartition(".")[2].lower() in NAMES for node in asked)


CHECK = Check(
    name="branch-on-tensor",
    title="A branch waits for a tensor",
    kind="code",
    severity="warning",
    check=_check,
    why="To choose the branch the host waits for the device.",
    fix="choose on the device (where, select), or look every n steps",
    bad="""for batch in dataset:
    loss = train_step(batch)
    if loss > 10:
        break
""",
    repair=(
        """for batch in dataset:
    loss = train_step(batch)
    if loss > 10:""",
        """for step, batch in enumerate(dataset):
    loss = train_step(batch)
    if step % 100 == 0 and loss > 10:""",
    ),
    example="train.py",
)
