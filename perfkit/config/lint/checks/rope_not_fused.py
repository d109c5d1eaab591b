"""A rotary position embedding in single operators."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.code import dotted, hot_nodes
from perfkit.config.lint.subjects import Code
from perfkit.core.texts import say


def _check(code: Code) -> Iterator[Found]:
    for node in hot_nodes(code):
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Add):
            continue
        left, right = node.left, node.right
        products = [side for side in (left, right) if isinstance(side, ast.BinOp) and isinstance(side.op, ast.Mult)]
        names = {part for side in products for found in ast.walk(side) for part in dotted(found).lower().split(".")}
        rotates = any("rotate" in name or name == "neg_half" for name in names)
        if len(products) == 2 and rotates and any("cos" in name for name in names) and any("sin" in name for name in names):
            yield Found(message=say("{code} runs as single operators", code=ast.unparse(node)[:80]), line=node.lineno)


CHECK = Check(
    name="rope-not-fused",
    title="The rotary embedding is not fused",
    kind="code",
    severity="information",
    check=_check,
    why="Six operators read and write the whole tensor instead of one.",
    fix="use the fused RotaryPositionEmbedding",
    bad="""class Rope(nn.Cell):
    def construct(self, x, cos, sin):
        return x * cos + rotate_half(x) * sin
""",
    repair=("        return x * cos + rotate_half(x) * sin", "        return self.rotary(x, cos, sin)"),
    example="net.py",
)
