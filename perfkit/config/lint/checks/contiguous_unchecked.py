"""A copy to contiguous memory that may not be needed. PyTorch's returns the tensor itself where it is contiguous."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.code import hot_nodes, imports
from perfkit.config.lint.subjects import Code
from perfkit.core.texts import say


def _check(code: Code) -> Iterator[Found]:
    if imports(code, "torch"):
        return
    for node in hot_nodes(code):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "contiguous":
            continue
        if not isinstance(node.func.value, ast.Subscript) and not _asked(code, node):
            yield Found(message=say("{code} may copy", code=ast.unparse(node)[:80]), line=node.lineno)


def _asked(code: Code, node: ast.AST) -> bool:
    tests = [around.test for around in code.around(node) if isinstance(around, (ast.If, ast.IfExp))]
    return any(isinstance(part, ast.Attribute) and part.attr == "is_contiguous" for test in tests for part in ast.walk(test))


CHECK = Check(
    name="contiguous-unchecked",
    title="A call of contiguous() without a check",
    kind="code",
    severity="information",
    check=_check,
    why="On a tensor that is contiguous already some versions copy it.",
    fix="drop it, or ask is_contiguous() first",
    bad="""class Net(nn.Cell):
    def construct(self, x):
        return self.dense(x.contiguous())
""",
    repair=(
        "        return self.dense(x.contiguous())",
        """        if not x.is_contiguous():
            x = x.contiguous()
        return self.dense(x)""",
    ),
    example="net.py",
)
