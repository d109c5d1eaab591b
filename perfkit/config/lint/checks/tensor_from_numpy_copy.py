"""A tensor that copies its array in every step."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.code import dotted, every_nth, only_where, step_loops
from perfkit.config.lint.subjects import Code
from perfkit.core.texts import say

TENSORS = ("Tensor", "ms.Tensor", "mindspore.Tensor", "torch.tensor")
ARRAYS = re.compile(r"(?:^|_)(?:np|numpy|arr|array|data|batch|images?|imgs?|labels?|inputs?|tokens|ids|masks?|x|y)$")
"""What arrays are called; of other names it is not known that they are no single numbers."""


def _check(code: Code) -> Iterator[Found]:
    for loop in step_loops(code):
        calls = (node for statement in loop.body for node in ast.walk(statement) if isinstance(node, ast.Call))
        for node in calls:
            if dotted(node.func) in TENSORS and node.args and _is_array(node.args[0]) and not every_nth(code, node):
                text = ast.unparse(node)[:80]
                yield Found(
                    message=say("{text} copies the array in every step{where}", text=text, where=only_where(code, node)),
                    line=node.lineno,
                )


def _is_array(node: ast.expr) -> bool:
    whole = node.value if isinstance(node, ast.Subscript) else node
    return ARRAYS.search(dotted(whole).rpartition(".")[2].lower()) is not None


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
