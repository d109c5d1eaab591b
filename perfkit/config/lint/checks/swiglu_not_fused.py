"""SwiGLU in single operators."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.code import called_name, hot_nodes
from perfkit.config.lint.subjects import Code
from perfkit.core.texts import say


def _check(code: Code) -> Iterator[Found]:
    for node in hot_nodes(code):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            calls = [side for side in (node.left, node.right) if isinstance(side, ast.Call)]
            if any(called_name(call).lower() in ("silu", "swish") for call in calls):
                yield Found(message=say("{code} runs as two operators", code=ast.unparse(node)[:80]), line=node.lineno)


CHECK = Check(
    name="swiglu-not-fused",
    title="SwiGLU is not fused",
    kind="code",
    severity="information",
    check=_check,
    why="The activation is written and read once more than needed, and kept for the backward pass.",
    fix="use the fused Swiglu",
    bad="""class Mlp(nn.Cell):
    def construct(self, g, u):
        return ops.silu(g) * u
""",
    repair=("        return ops.silu(g) * u", "        return swiglu(g, u)"),
    example="net.py",
)
