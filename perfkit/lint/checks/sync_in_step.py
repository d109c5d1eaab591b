"""A value of a tensor that is fetched to the host in every step."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeGuard

from perfkit.lint._check import Check, Found
from perfkit.lint._code import every_nth, step_loops
from perfkit.lint._subjects import Code

METHODS = frozenset({"asnumpy", "item", "tolist", "cpu", "numpy"})


def _check(code: Code) -> Iterator[Found]:
    for loop in step_loops(code):
        for node in ast.walk(loop):
            if _fetches(node) and not every_nth(code, node, loop):
                yield Found(message=f"{ast.unparse(node)[:80]} waits for the device in every step", line=node.lineno)


def _fetches(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in METHODS and not node.args


CHECK = Check(
    name="sync-in-step",
    title="The host waits for the device in every step",
    kind="code",
    severity="warning",
    check=_check,
    why="The host can launch nothing while it waits, so that the device runs dry after every step.",
    fix="fetch the value every n steps",
    bad="""for step, batch in enumerate(dataset):
    loss = train_step(batch)
    print(loss.asnumpy())
""",
    good="""for step, batch in enumerate(dataset):
    loss = train_step(batch)
    if step % 100 == 0:
        print(loss.asnumpy())
""",
    example="train.py",
)
