"""Operators of the older interface."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.code import called_name, dotted, hot_nodes
from perfkit.config.lint.subjects import Code
from perfkit.core.texts import say

AXIS = {"axis": "dim"}
FUNCTIONAL = "mint.nn.functional"
MINT: dict[str, tuple[str, dict[str, str]]] = {
    **{name: (f"mint.{name}", {}) for name in (
        "matmul", "bmm", "add", "sub", "mul", "div", "exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "abs", "pow", "sin", "cos",
        "where", "sum", "zeros", "ones", "full", "arange", "reshape",
    )},
    **{name: (f"{FUNCTIONAL}.{name}", {}) for name in ("relu", "gelu", "silu")},
    "softmax": (f"{FUNCTIONAL}.softmax", AXIS),
    **{name: (f"mint.{name}", AXIS) for name in ("cat", "concat", "stack", "split")},
    "mean": ("mint.mean", AXIS | {"keep_dims": "keepdim"}),
    "permute": ("mint.permute", {"axis": "dims"}),
    "transpose": ("mint.permute", {"input_perm": "dims"}),
}  # fmt: skip
"""What takes the place of an operator of `ops` with the same positional arguments, and the keywords that are called otherwise.

mint.transpose takes two dimensions, so that ops.transpose becomes mint.permute; gather, max and min take or give something else and
are left out. Looked up are the signatures of softmax and silu (mindspore.cn, mint of 2.3 to 2.7); the others follow
PyTorch's.
"""
UNSTATED = {"softmax": ("axis", 1, "dim=-1")}
"""Keywords whose default is another one in mint, with their position and what says the same there: its softmax has none."""


def _check(code: Code) -> Iterator[Found]:
    for node in hot_nodes(code):
        name = called_name(node) if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Call) and name in MINT and dotted(node.func) == f"ops.{name}":
            target, renamed = MINT[name]
            changed = [
                say("{renamed} for {arg}", renamed=str(renamed[word.arg]), arg=str(word.arg))
                for word in node.keywords
                if word.arg in renamed
            ]
            if name in UNSTATED:
                keyword, position, same = UNSTATED[name]
                stated = len(node.args) > position or keyword in {word.arg for word in node.keywords}
                changed += [] if stated else [say("{same}, which ops takes without being told", same=same)]
            fix = f"{target}(...)" + (say(", with {names}", names=" and ".join(changed)) if changed else "")
            yield Found(message=say("ops.{name} has a faster {target}", name=str(name), target=target), line=node.lineno, fix=fix)


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
