"""An activation that selective recompute cannot find."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.code import dotted
from perfkit.config.lint.subjects import Code
from perfkit.core.texts import say

ACTIVATIONS = frozenset({"silu", "gelu", "relu", "sigmoid", "tanh", "swish", "fast_gelu"})


def _check(code: Code) -> Iterator[Found]:
    if "select_recompute" not in code.text and "recompute" not in code.text:
        return
    for node in code.nodes(ast.Assign):
        name = dotted(node.targets[0]) if len(node.targets) == 1 else ""
        value = dotted(node.value)
        if (
            name.startswith("self.")
            and value.rpartition(".")[2] in ACTIVATIONS
            and value.partition(".")[0] in ("ops", "mint", "F", "P")
        ):
            yield Found(message=say("{code} is a function", code=ast.unparse(node)[:80]), line=node.lineno)


CHECK = Check(
    name="activation-not-cell",
    title="An activation is no cell",
    kind="code",
    severity="warning",
    check=_check,
    why="Selective recompute names cells; a plain function is never recomputed.",
    fix="wrap the activation in a class of nn.Cell",
    bad="""class Mlp(nn.Cell):
    def __init__(self):
        self.act = ops.silu
        self.recompute()
""",
    repair=("        self.act = ops.silu", "        self.act = SiLU()"),
    example="net.py",
)
