"""An array that from_numpy has to copy."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.code import called_name
from perfkit.config.lint.subjects import Code
from perfkit.core.texts import say


def _check(code: Code) -> Iterator[Found]:
    for node in code.nodes(ast.Call):
        if called_name(node) == "from_numpy" and node.args and _is_strided(node.args[0]):
            yield Found(message=say("{code} copies: the array is not contiguous", code=ast.unparse(node)[:80]), line=node.lineno)


def _is_strided(node: ast.expr) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == "T"
    if isinstance(node, ast.Call):
        return called_name(node) in ("transpose", "swapaxes", "moveaxis")
    return isinstance(node, ast.Subscript) and any(
        isinstance(part, ast.Slice) and part.step is not None for part in ast.walk(node.slice)
    )


CHECK = Check(
    name="from-numpy-not-contiguous",
    title="A call of from_numpy with an array that is not contiguous",
    kind="code",
    severity="information",
    check=_check,
    why="A transposed or strided array is copied, although from_numpy looks as if it shared memory.",
    fix="make it contiguous once in the dataset with np.ascontiguousarray",
    bad="""x = Tensor.from_numpy(a.T)
""",
    repair=("x = Tensor.from_numpy(a.T)", "x = Tensor.from_numpy(np.ascontiguousarray(a.T))"),
    example="data.py",
)
