"""A Python loop over the elements of a tensor."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.code import called_name, is_hot
from perfkit.config.lint.subjects import Code
from perfkit.core.texts import say


def _check(code: Code) -> Iterator[Found]:
    for node in code.nodes(ast.For):
        if not _over_a_shape(node.iter) or not is_hot(code, node):
            continue
        name = node.target.id if isinstance(node.target, ast.Name) else ""
        if any(
            isinstance(found, ast.Subscript) and _uses(found.slice, name)
            for statement in node.body
            for found in ast.walk(statement)
        ):
            yield Found(
                message=say(
                    "for {code} in {many}: one element at a time", code=ast.unparse(node.target), many=ast.unparse(node.iter)[:60]
                ),
                line=node.lineno,
            )


def _over_a_shape(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call) or called_name(node) != "range":
        return False
    return any(
        (isinstance(found, ast.Attribute) and found.attr == "shape")
        or (isinstance(found, ast.Call) and called_name(found) == "size")
        for item in node.args
        for found in ast.walk(item)
    )


def _uses(node: ast.expr, name: str) -> bool:
    return any(isinstance(found, ast.Name) and found.id == name for found in ast.walk(node))


CHECK = Check(
    name="tensor-loop",
    title="A Python loop over a tensor",
    kind="code",
    severity="warning",
    check=_check,
    why="Every turn launches operators of its own.",
    fix="use one batched call",
    bad="""class Net(nn.Cell):
    def construct(self, x):
        y = []
        for i in range(x.shape[0]):
            y.append(self.dense(x[i]))
        return y
""",
    repair=(
        """        y = []
        for i in range(x.shape[0]):
            y.append(self.dense(x[i]))
        return y""",
        "        return self.dense(x)",
    ),
    example="net.py",
)
