"""Work on a batch between iterator and network."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.code import called_name, is_step_call, step_loops
from perfkit.config.lint.subjects import Code
from perfkit.core.texts import say

MOVES = (
    "tensor",
    "tuple",
    "list",
    "dict",
    "next",
    "iter",
    "move_to_device",
    "to_device",
    "to_tensor",
    "send_to_device",
    "enumerate",
)
MODELS = frozenset({"model", "net", "network", "module"})
WORK = ("transform", "preprocess", "augment", "tokenize", "collate", "pad", "decode", "normalize", "resize", "prepare", "process")


def _check(code: Code) -> Iterator[Found]:
    for loop in step_loops(code):
        if not isinstance(loop, ast.For):
            continue
        batch = {found.id for found in ast.walk(loop.target) if isinstance(found, ast.Name)}
        for statement in loop.body:
            for node in ast.walk(statement):
                if isinstance(node, ast.Call) and (_prepares(node, batch) or _replaces(node, code.parents.get(node), batch)):
                    yield Found(message=say("{code} runs between two steps", code=ast.unparse(node)[:80]), line=node.lineno)


def _prepares(node: ast.Call, batch: set[str]) -> bool:
    name = called_name(node).lower()
    used = {found.id for item in node.args for found in ast.walk(item) if isinstance(found, ast.Name)}
    return name.split("_")[0] in WORK and bool(used & batch)


def _replaces(node: ast.Call, around: ast.AST | None, batch: set[str]) -> bool:
    """Whether a batch becomes the result of a function of it, which is no step and no mere move or cast."""
    name = called_name(node).lower()
    if not isinstance(around, ast.Assign) or not isinstance(node.func, ast.Name) or name in MOVES or is_step_call(name):
        return False
    targets = {found.id for target in around.targets for found in ast.walk(target) if isinstance(found, ast.Name)}
    used = {item.id for item in node.args if isinstance(item, ast.Name)}
    return bool(targets & used & batch) and not used & MODELS  # what asks the model cannot run before it


CHECK = Check(
    name="work-between-batches",
    title="Batches are prepared between two steps",
    kind="code",
    severity="warning",
    check=_check,
    why="It runs on the main thread while the device waits.",
    fix="move it into the dataset (map), where workers do it ahead of time",
    bad="""for item in dataset.create_dict_iterator():
    item = transform_data(item)
    loss = net(item)
""",
    repair=(
        """for item in dataset.create_dict_iterator():
    item = transform_data(item)""",
        """dataset = dataset.map(transform_data)
for item in dataset.create_dict_iterator():""",
    ),
    example="train.py",
)
