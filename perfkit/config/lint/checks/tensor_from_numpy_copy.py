"""A tensor that copies its array in every step."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.code import dotted, step_loops
from perfkit.config.lint.subjects import Code


def _check(code: Code) -> Iterator[Found]:
    for loop in step_loops(code):
        for statement in loop.body:
            for node in ast.walk(statement):
                named = isinstance(node, ast.Call) and dotted(node.func) in (
                    "Tensor",
                    "ms.Tensor",
                    "mindspore.Tensor",
                    "torch.tensor",
                )
                if (
                    named
                    and isinstance(node, ast.Call)
                    and node.args
                    and isinstance(node.args[0], (ast.Name, ast.Attribute, ast.Subscript))
                ):
                    text = ast.unparse(node)[:80]
                    yield Found(message=f"{text} copies the array in every step", line=node.lineno)


CHECK = Check(
    name="tensor-from-numpy-copy",
    title="Tensor(array) copies in every step",
    kind="code",
    severity="warning",
    check=_check,
    why="The batch is copied on the host once more than needed.",
    fix="use Tensor.from_numpy, which shares the memory",
    bad="""for batch_np in loader:
    loss = train_step(Tensor(batch_np))
""",
    repair=("    loss = train_step(Tensor(batch_np))", "    loss = train_step(Tensor.from_numpy(batch_np))"),
    example="train.py",
)
