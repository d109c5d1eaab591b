"""Python of a training script: checked as user code is, with the settings that its calls make."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator

from perfkit.config.fragments.meanings import meanings
from perfkit.config.lint import lint_text
from perfkit.config.lint.code import called_name
from perfkit.core.spec.plan import Plan
from perfkit.core.syntax import tree_of
from perfkit.core.texts import say
from perfkit.explain.fragments.kind import FragmentKind, Part, Piece

_LINE = re.compile(
    r"^\s*(?:import\s+\w|from\s+[\w.]+\s+import\b|class\s+\w+|(?:async\s+)?def\s+\w+|(?:for|while|if|elif|with|try|else|except)\b.*:\s*(?:#.*)?$"
    r"|@\w|return\b|raise\s|assert\s|\w+(?:\.\w+)*\s*\(|\"\"\"|[a-z_]\w*(?:\.\w+|\[[^\]]*\])*\s*[-+*/]?=(?!=)\s*[\w\"'(\[{-])"
)
_SETTING = re.compile(r"^\s*(?!self\.)(?:\w+\.)*\w+_config(?:\.\w+)+\s*=")
SETTERS = ("set_context", "context", "set_auto_parallel_context", "set_memory", "set_jit_level")


def _read(piece: Piece) -> Part:
    text = textwrap.dedent(piece.text)
    problems = [
        piece.problem(one.rule, one.severity, one.message, line=one.line, key=one.key, fix=one.fix)
        for one in lint_text("fragment.py", text, ["code"]).problems
    ]
    try:
        says = tuple(_says(tree_of(text), piece.plan))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        says = ()
    return Part(
        kind=FRAGMENT.name, title="Python of a training script", belongs="the training script", says=says, problems=tuple(problems)
    )


def _says(tree: ast.Module, plan: Plan | None) -> Iterator[str]:
    """What calls set, and what custom cells keep for their backward pass."""
    context = meanings("mindformers")
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = called_name(node)
            for word in node.keywords if name in SETTERS else ():
                if word.arg and (meaning := context.get(f"context.{word.arg}") or context.get(f"parallel.{word.arg}")):
                    form, value = "{key} = {value}: {meaning} (default {default})", ast.unparse(word.value)
                    yield say(form, key=word.arg, value=value, meaning=meaning.text, default=meaning.default)
            yield from _of_call(name, node, plan)
        elif isinstance(node, ast.Assign) and any(ast.unparse(one).endswith("used_bprop_inputs") for one in node.targets):
            kept = ast.unparse(node.value)
            form = "used_bprop_inputs = {kept}: arguments that are kept for bprop: inputs first, then output, then its gradient"
            yield say(form, kept=kept)
        elif isinstance(node, ast.FunctionDef) and any("jit" in ast.unparse(one) for one in node.decorator_list):
            yield say("{name} is compiled to a graph (jit); optimizers gain most", name=node.name)


def _of_call(name: str, node: ast.Call, plan: Plan | None) -> Iterator[str]:
    if name == "collect" and ast.unparse(node.func).startswith("gc"):
        yield "gc.collect(): frees what nothing refers to any more; every few hundred steps, not in each"
    if name == "initialize_model_parallel":
        for word in node.keywords:
            if word.arg == "zero_shard_size":
                yield "zero_shard_size: replicas that share one optimizer state, more than 1 and a divisor of the replicas"
                size = plan.parallel.data_parallel_size if plan is not None else 0
                fitting = ", ".join(str(one) for one in range(2, size + 1) if size % one == 0) or "none"
                yield from [say("with {number} replicas: {sizes}", number=size, sizes=fitting)] if size else []
    if name in ("time", "perf_counter"):
        yield say("{call}: the time of the host; what the device does later is not in it", call=ast.unparse(node))


FRAGMENT = FragmentKind(
    name="code",
    title="Python code",
    looks_for="imports, classes, functions, loops and calls",
    order=50,
    claims=lambda line: _LINE.match(line) is not None and not _SETTING.match(line),
    read=_read,
    holds=lambda text, line: (
        bool(re.search(r"^\s*(?:class|def|for|while|if|with)\b", text, re.MULTILINE)) and line[:1] in (" ", "\t")
    ),
)
