"""A constant tensor that is built anew in every step."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.code import called_name, dotted, step_methods
from perfkit.config.lint.subjects import Code
from perfkit.core.texts import say

BUILDERS = frozenset({"zeros", "ones", "full", "arange", "eye", "tril", "triu"})


def _check(code: Code) -> Iterator[Found]:
    for _, method in step_methods(code, "construct", "forward"):
        names = {argument.arg for argument in method.args.args} - {"self"}
        for node in ast.walk(method):
            if not isinstance(node, ast.Call) or called_name(node) not in BUILDERS or not isinstance(node.func, ast.Attribute):
                continue
            used = {
                found.id
                for item in [*node.args, *(word.value for word in node.keywords)]
                for found in ast.walk(item)
                if isinstance(found, ast.Name)
            }
            known = {dotted(found) for item in node.args for found in ast.walk(item)} - {""}
            if node.args and not used & names and all(name.startswith("self") for name in known if name not in ("ms", "mindspore")):
                yield Found(message=say("{code} is the same in every step", code=ast.unparse(node)[:80]), line=node.lineno)


CHECK = Check(
    name="step-alloc",
    title="A constant is built in every step",
    kind="code",
    severity="information",
    check=_check,
    why="The same values are allocated, filled and freed in every step.",
    fix="build it once in __init__",
    bad="""class Attention(nn.Cell):
    def construct(self, x):
        mask = ops.zeros((self.seq_length, self.seq_length))
        return self.attend(x, mask)
""",
    repair=(
        """    def construct(self, x):
        mask = ops.zeros((self.seq_length, self.seq_length))
        return self.attend(x, mask)""",
        """    def __init__(self):
        self.mask = ops.zeros((4096, 4096))

    def construct(self, x):
        return self.attend(x, self.mask)""",
    ),
    example="net.py",
)
