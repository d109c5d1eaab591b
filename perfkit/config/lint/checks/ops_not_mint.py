"""Operators of the older interface."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.code import called_name, dotted, hot_nodes
from perfkit.config.lint.subjects import Code

COVERED = frozenset(
    (
        *("matmul", "bmm", "add", "sub", "mul", "div", "exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "softmax", "relu", "gelu"),
        *("silu", "cat", "concat", "split", "stack", "where", "sum", "mean", "max", "min", "zeros", "ones", "full", "arange"),
        *("abs", "pow", "sin", "cos", "permute", "transpose", "reshape", "gather"),
    )
)


def _check(code: Code) -> Iterator[Found]:
    for node in hot_nodes(code):
        if isinstance(node, ast.Call) and dotted(node.func) in {f"ops.{name}" for name in COVERED}:
            name = called_name(node)
            yield Found(message=f"ops.{name} has a faster mint.{name}", line=node.lineno, fix=f"mint.{name}(...)")


CHECK = Check(
    name="ops-not-mint",
    title="The faster interface mint is not used",
    kind="code",
    severity="information",
    check=_check,
    why="mint operators call the device's kernels with less work on the host.",
    fix="use mindspore.mint where it has the operator",
    bad="""class Net(nn.Cell):
    def construct(self, a, b):
        return ops.matmul(a, b)
""",
    repair=("        return ops.matmul(a, b)", "        return mint.matmul(a, b)"),
    example="net.py",
)
