"""Reductions as methods of a tensor."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.code import dotted, step_methods
from perfkit.config.lint.subjects import Code

RENAMED = {"axis": "dim", "keep_dims": "keepdim", "keepdims": "keepdim"}
METHODS = frozenset({"sum", "mean", "max", "min"})


def _check(code: Code) -> Iterator[Found]:
    for _, method in step_methods(code, "construct"):
        for node in ast.walk(method):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in METHODS:
                continue
            if dotted(node.func.value) not in ("mint", "ops", "np", "numpy", "math", "torch", "F", "P", "self"):
                yield Found(
                    message=f"{ast.unparse(node)[:80]}", line=node.lineno, fix=_as_function(node.func.attr, node.func.value, node)
                )


def _as_function(name: str, value: ast.expr, node: ast.Call) -> str:
    """The call as a function of mint, with its keywords as documented there."""
    words = [f"{RENAMED.get(word.arg or '', word.arg)}={ast.unparse(word.value)}" for word in node.keywords if word.arg]
    return f"mint.{name}({', '.join([ast.unparse(value)[:40], *map(ast.unparse, node.args), *words])})"


CHECK = Check(
    name="method-sum",
    title="A reduction is called as a method",
    kind="code",
    severity="information",
    check=_check,
    why="Methods of the older interface do more on the host than mint functions.",
    fix="use mint.sum(x) and the like",
    bad="""class Net(nn.Cell):
    def construct(self, x):
        return x.sum()
""",
    repair=("        return x.sum()", "        return mint.sum(x)"),
    example="net.py",
)
