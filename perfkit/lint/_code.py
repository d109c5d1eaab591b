"""What code checks ask of a syntax tree: which loops are training loops, what is done only every n steps."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfkit.lint._subjects import Code

STEP_NAMES = ("step", "train", "net", "network", "model", "forward", "loss", "grad", "optimizer", "opt")
LOOP_NAMES = (
    "dataset",
    "loader",
    "dataloader",
    "iterator",
    "batches",
    "steps",
    "epochs",
    "create_dict_iterator",
    "create_tuple_iterator",
)


def called_name(node: ast.Call) -> str:
    """The last name of what is called: `a.b.c(...)` is "c"."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""


def dotted(node: ast.AST) -> str:
    """`a.b.c` as text; "" for anything that is no chain of names."""
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return f"{before}.{node.attr}" if before else ""
    return node.id if isinstance(node, ast.Name) else ""


def step_loops(code: Code) -> Iterator[ast.For | ast.While]:
    """Innermost loops that run training steps: they go over batches or steps, or call a network, a step or an optimizer."""
    for loop in code.nodes(ast.For, ast.While):
        if _runs_steps(loop) and not any(_runs_steps(inner) for inner in _inner_loops(loop)):
            yield loop


def every_nth(code: Code, node: ast.AST, loop: ast.AST) -> bool:
    """Whether a node inside `loop` runs only every n steps: under an `if` with a modulo, or that compares a step counter."""
    for around in code.around(node):
        if around is loop:
            return False
        if isinstance(around, ast.If) and _is_counted(around.test):
            return True
    return False


def _is_counted(test: ast.expr) -> bool:
    return any(
        (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod))
        or (
            isinstance(node, (ast.Name, ast.Attribute))
            and dotted(node).rpartition(".")[2].startswith(("log_", "should_", "is_last"))
        )
        for node in ast.walk(test)
    )


def _inner_loops(loop: ast.For | ast.While) -> Iterator[ast.For | ast.While]:
    for statement in loop.body:
        for node in ast.walk(statement):
            if isinstance(node, (ast.For, ast.While)):
                yield node


def _runs_steps(loop: ast.For | ast.While) -> bool:
    if isinstance(loop, ast.For) and _names_batches(loop.iter):
        return True
    calls = (node for statement in loop.body for node in ast.walk(statement) if isinstance(node, ast.Call))
    return any(_is_step_call(called_name(call).lower()) for call in calls)


def _names_batches(node: ast.expr) -> bool:
    names = {
        part.lower()
        for found in ast.walk(node)
        for part in ([found.id] if isinstance(found, ast.Name) else [found.attr] if isinstance(found, ast.Attribute) else [])
    }
    return any(name == known or name.endswith(f"_{known}") for name in names for known in LOOP_NAMES)


def _is_step_call(name: str) -> bool:
    return any(name == known or name.startswith(f"{known}_") or name.endswith(f"_{known}") for known in STEP_NAMES)
