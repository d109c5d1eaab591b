"""A cast of weights or constants in every step."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.code import called_name, dotted, hot_nodes
from perfkit.config.lint.subjects import Code
from perfkit.core.texts import say


def _check(code: Code) -> Iterator[Found]:
    for node in hot_nodes(code):
        if not isinstance(node, ast.Call):
            continue
        by_method = isinstance(node.func, ast.Attribute) and node.func.attr in ("astype", "to", "half", "bfloat16")
        subject = (
            node.func.value
            if by_method and isinstance(node.func, ast.Attribute)
            else node.args[0]
            if called_name(node) == "cast" and node.args
            else None
        )
        if subject is not None and dotted(subject).startswith("self.") and dotted(subject).rpartition(".")[2] in WEIGHTS:
            yield Found(message=say("{code} casts the same values in every step", code=ast.unparse(node)[:80]), line=node.lineno)


WEIGHTS = frozenset({"weight", "bias", "mask", "freqs_cis", "cos", "sin", "embedding_table", "gamma", "beta"})


CHECK = Check(
    name="cast-in-step",
    title="The same values are cast in every step",
    kind="code",
    severity="information",
    check=_check,
    why="A cast reads and writes the whole tensor; of a weight it does so in every micro batch.",
    fix="keep the weight in the type that it is used in",
    bad="""class Dense(nn.Cell):
    def construct(self, x):
        return self.matmul(x, self.cast(self.weight, self.dtype))
""",
    repair=("        return self.matmul(x, self.cast(self.weight, self.dtype))", "        return self.matmul(x, self.weight)"),
    example="net.py",
)
