"""Options of Megatron and MindSpeed, a few of them or the arguments of a whole script."""

from __future__ import annotations

import re

from perfkit.config.dialects.args import parse
from perfkit.config.dialects.megatron_options import FLAGS, LISTS
from perfkit.config.lint import lint_text
from perfkit.core.errors import InputError
from perfkit.core.figure import figure
from perfkit.core.texts import say
from perfkit.explain.fragments.applied import apply
from perfkit.explain.fragments.effects import option_lines
from perfkit.explain.fragments.kind import FragmentKind, Part, Piece

_LINE = re.compile(r"^\s*(?:[A-Z_]+=(?:\(|\")\s*)?--[a-z][\w-]+")
_ARRAY = re.compile(r"^\s*[A-Za-z_]+=(?:\(|\")\s*$")
SIZES = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")


def _read(piece: Piece) -> Part:
    try:
        found = parse(piece.text, piece.name, FLAGS, LISTS)
    except InputError as error:
        problems = tuple(piece.problem("options-broken", "error", problem) for problem in error.problems)
        return Part(kind=FRAGMENT.name, title="options that cannot be split into words", problems=problems)
    values = found.values
    noted = [
        piece.problem(one.rule, one.severity, one.message, line=one.line, key=one.key, fix=one.fix)
        for one in lint_text("fragment.sh", piece.text, ["config"]).problems
    ]
    says = option_lines(values)
    figures = []
    stated = [values[name] for name in SIZES if isinstance(values.get(name), int)]
    if stated:
        product = 1
        for size in stated:
            product *= size
        figures.append(figure("devices of one replica, stated sizes", product, "", "computed", "tensor x pipeline x context"))
    if piece.plan is not None:
        applied = apply(piece.plan, "megatron", {(name,): value for name, value in values.items()}, piece.name)
        says += applied.says
        figures += applied.figures
        noted += applied.problems
    return Part(
        kind=FRAGMENT.name,
        title=say("options of Megatron or MindSpeed: {number}", number=len(values)),
        belongs="the arguments of the training script",
        says=(*found.repeated, *says),
        figures=tuple(figures),
        problems=tuple(noted),
    )


FRAGMENT = FragmentKind(
    name="options",
    title="options of Megatron or MindSpeed",
    looks_for="lines such as `--tensor-model-parallel-size 8`",
    order=30,
    claims=lambda line: _LINE.match(line) is not None or _ARRAY.match(line) is not None,
    read=_read,
    holds=lambda text, line: _ARRAY.match(text.lstrip("\n").split("\n")[0]) is not None and line.strip() in (")", '"'),
)
