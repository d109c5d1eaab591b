"""A value of a tensor that is fetched to the host in every step."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.code import called_name, dotted, every_nth, hot_nodes, imports, only_where
from perfkit.config.lint.fetched import CASTS, METHODS, is_fetched
from perfkit.config.lint.subjects import Code
from perfkit.core.texts import say

FETCHED = frozenset({"loss", "losses", "grad", "grads", "norm", "output", "outputs", "logits", "acc"})
BATCHES = frozenset({"batch", "batches", "micro_batch", "data", "sample", "inputs", "labels"})
MOVES = frozenset({"to", "cuda", "npu", "to_device", "move_to_device", "send_to_device"})
LIMITS = frozenset({"clip", "max", "min", "target"})
DEVICES = frozenset({"torch", "cuda", "npu", "xpu", "hal", "ms", "mindspore", "runtime", "stream"})


def _check(code: Code) -> Iterator[Found]:
    if _drives(code):
        return
    for node in hot_nodes(code):
        if not isinstance(node, ast.Call) or not _fetches(code, node) or _is_part(code, node) or _is_numpy(code, node):
            continue
        if _is_moved_later(code, node):
            continue
        if not every_nth(code, node):
            text = ast.unparse(node)[:80]
            yield Found(
                message=say("{text} waits for the device in every step{where}", text=text, where=only_where(code, node)),
                line=node.lineno,
            )


def _drives(code: Code) -> bool:
    """Whether a file has the steps run by Ray's workers elsewhere: its own tensors are on the host."""
    called = {called_name(node) for node in code.nodes(ast.Call)}
    remote = imports(code, "ray") or any("ray" in (node.module or "").split(".") for node in code.nodes(ast.ImportFrom))
    return remote and not called & {"backward", "zero_grad", "cuda", "npu", "train_step", "train_one_step"}


def _is_part(code: Code, node: ast.Call) -> bool:
    """Whether a call is the beginning of a chain that is told as a whole (`x.cpu().item()`)."""
    around = code.parents.get(node)
    return isinstance(around, ast.Attribute) and isinstance(call := code.parents.get(around), ast.Call) and _fetches(code, call)


def _is_numpy(code: Code, node: ast.Call) -> bool:
    """Whether a value is an array of NumPy, as its function made it."""
    whose: ast.AST = node.func
    while isinstance(whose, (ast.Attribute, ast.Subscript)):
        whose = whose.value
    if not isinstance(whose, ast.Name):
        return False
    owner = next((around for around in code.around(node) if isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef))), None)
    made = [
        ast.unparse(item.value)
        for item in ast.walk(owner or ast.Module(body=[], type_ignores=[]))
        if isinstance(item, ast.Assign) and any(isinstance(one, ast.Name) and one.id == whose.id for one in item.targets)
    ]
    return bool(made) and all(text.startswith(("np.", "numpy.")) for text in made)


def _is_moved_later(code: Code, node: ast.Call) -> bool:
    """Whether a value is of a batch that the file moves to the device, and has not yet where the value is asked for."""
    names = {found.id for found in ast.walk(node.func) if isinstance(found, ast.Name) and found.id in BATCHES}
    moves = [
        item
        for item in code.nodes(ast.Assign)
        if any(isinstance(one, ast.Name) and one.id in names for one in item.targets) and _moves(item.value)
    ]
    owner = next((around for around in code.around(node) if isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef))), None)
    before = [item for item in moves if owner is None or (owner in code.around(item) and item.lineno <= node.lineno)]
    return bool(moves) and owner is not None and not before


def _moves(value: ast.expr) -> bool:
    """Whether an expression copies a batch to a device."""
    return any(isinstance(found, ast.Call) and called_name(found) in MOVES for found in ast.walk(value))


def _fetches(code: Code, node: ast.Call) -> bool:
    if isinstance(node.func, ast.Attribute):
        whose = dotted(node.func.value)
        if node.func.attr == "synchronize":
            return any(part in DEVICES for part in whose.split("."))
        plain = node.func.attr in METHODS and not node.args and not whose.startswith(("np", "numpy", "os"))
        return plain and not (isinstance(node.func.value, ast.Name) and is_fetched(code, node.func.value))
    if called_name(node) in CASTS and len(node.args) == 1:
        return _is_value(node.args[0]) and not is_fetched(code, node.args[0])
    if called_name(node) == "print":
        return any(_is_value(item) and not is_fetched(code, item) for item in node.args)
    return False


def _is_value(node: ast.expr) -> bool:
    """Whether a name is that of a value of the step: `loss`, `grad_norm`, and neither `norm_type` nor `max_norm`."""
    parts = dotted(node).rpartition(".")[2].lower().split("_")
    return parts[-1] in FETCHED and not LIMITS.intersection(parts)


CHECK = Check(
    name="sync-in-step",
    title="The host waits for the device in every step",
    kind="code",
    severity="warning",
    check=_check,
    why="The host can launch nothing while it waits, so that the device runs dry after every step.",
    fix="fetch the value every n steps",
    bad="""for step, batch in enumerate(dataset):
    loss = train_step(batch)
    print(loss.asnumpy())
""",
    repair=(
        "    print(loss.asnumpy())",
        """    if step % 100 == 0:
        print(loss.asnumpy())""",
    ),
    example="train.py",
)
