"""Reductions as methods of a tensor."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.code import dotted, step_methods
from perfkit.config.lint.subjects import Code

METHODS = frozenset({"sum", "mean", "max", "min"})


def _check(code: Code) -> Iterator[Found]:
    for _, method in step_methods(code, "construct"):
        for node in ast.walk(method):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in METHODS:
                continue
            if dotted(node.func.value) not in ("mint", "ops", "np", "numpy", "math", "torch", "F", "P", "self"):
                name = node.func.attr
                yield Found(
                    message=f"{ast.unparse(node)[:80]}", line=node.lineno, fix=f"mint.{name}({ast.unparse(node.func.value)[:40]})"
                )


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
