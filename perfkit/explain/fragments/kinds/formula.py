"""A formula of a guide, or a rule with letters: which one it is, what its letters are, and its value for the plan."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from perfkit.config.lint.check import Problem
from perfkit.core.errors import InputError
from perfkit.core.figure import Figure, figure
from perfkit.core.spec.plan import Plan
from perfkit.core.texts import say
from perfkit.core.units import NS_PER_S, format_entry
from perfkit.explain.fragments.kind import FragmentKind, Part, Piece
from perfkit.explain.fragments.symbols import evaluate, formula_in, meaning_of, plain, unit_of
from perfkit.predict.estimate import Estimate, estimate

_MARK = re.compile(r"^\s*\$\$\s*$|\\frac\b|^\s*\$[^$]+=[^$]+\$\s*$")
_RULE = re.compile(r"^\s*\w*[A-Za-z]\w*(?:\s*[-+*/]\s*\w+)+\s*<=?\s*\w+\s*$")
_EQUATION = re.compile(r"^\s*[A-Za-z][\w \-/]*\s*=\s*[^=\"'\[{]*[A-Za-z)\]]\s*[*/]\s*[^=\"']+$")
_LETTERS = re.compile(r"^\s*\d*\s*\*?\s*(?=[^A-Za-z]*[bshvLaN])(?=.*\d)[\dbshvLaNqtfcor\s*/+()\[\]^$²-]+$")


@dataclass(frozen=True, slots=True)
class _Known:
    """A formula that has a name: how it is recognised, what it says, its erratum, and its value for an estimated plan."""

    pattern: re.Pattern[str]
    title: str
    says: str
    value: Callable[[Plan, Estimate], Figure] | None = None
    erratum: tuple[str, str, str] | None = None


def _throughput(plan: Plan, found: Estimate) -> Figure:
    return figure(
        "tokens a device", found.tokens_per_s_per_device, "tokens/s", "computed", "global batch x sequence / (step time x devices)"
    )


def _samples(plan: Plan, found: Estimate) -> Figure:
    return figure(
        "samples", plan.workload.global_batch_size / found.step_time_s, "samples/s", "computed", "global batch / step time"
    )


def _batch(plan: Plan, found: Estimate) -> Figure:
    return figure(
        "global batch", plan.workload.global_batch_size, "sequences", "computed", "replicas x micro batch x micro batches"
    )


def _step(plan: Plan, found: Estimate) -> Figure:
    return figure("step time", found.step_time_s * NS_PER_S, "ns", "computed", "estimate")


KNOWN = (
    _Known(
        re.compile(r"SeqLength.*samples?/s/p", re.IGNORECASE),
        "throughput: tokens of a device and second",
        "SeqLength x global batch / (step time x p); p is the number of all devices",
        _throughput,
        (
            "X02",
            "p is called the size of data parallelism; with it the rate is too large by the tensor and pipeline sizes",
            "divide by all devices",
        ),
    ),
    _Known(
        re.compile(r"FLOPs_?\(?recompute", re.IGNORECASE),
        "HFU: utilization with the work that is computed again",
        "(model FLOP + recomputed FLOP) / (step time x peak of all devices)",
        lambda plan, found: figure("HFU", found.hfu, "ratio", "computed", "estimate"),
        ("X01", "the formula counts recomputation, so that it is HFU, not MFU", "read the left side as HFU"),
    ),
    _Known(
        re.compile(r"FLOPs.*(?:StepTime|HardwareCapacity)", re.IGNORECASE),
        "MFU: utilization without recomputation",
        "model FLOP of a step / (step time x peak of all devices)",
        lambda plan, found: figure("MFU", found.mfu, "ratio", "computed", "estimate"),
    ),
    _Known(
        re.compile(r"BS\s*\*\s*N\s*\)?\s*/|BS\s*\*\s*N\b", re.IGNORECASE),
        "throughput: samples of the job and second",
        "batch of a replica, all its micro batches included, x replicas / step time",
        _samples,
        ("X14", "the batch of a replica leaves out its micro batches", "take batch_size x micro_batch_num"),
    ),
    _Known(
        re.compile(r"Global[- _]?batch[- _]?size.*DP.*batch", re.IGNORECASE),
        "the global batch",
        "replicas x sequences of a micro batch x micro batches",
        _batch,
    ),
    _Known(
        re.compile(r"(?:recompute\w*)\s*\+\s*(?:full\w*|recompute\w*)\s*<=?\s*num_layers", re.IGNORECASE),
        "the limit of recompute lists",
        "layers of a stage and chunk that are recomputed in full and in part are at most the layers it has",
        None,
        ("X14", "the text says fewer than the layers, the formula and the program allow as many", "<= holds"),
    ),
    _Known(
        re.compile(r"(?:linear|speed-?up|线性度).*(?:throughput|吞吐)", re.IGNORECASE),
        "linearity",
        "throughput of the cluster / (throughput of one unit x number of units), both in the same unit",
        None,
        (
            "X12",
            "the throughput of a node is multiplied by cards",
            "multiply that of a device by devices, or that of a node by nodes",
        ),
    ),
)


def _read(piece: Piece) -> Part:
    text = plain(" ".join(line.lstrip(" #") for line in piece.text.split("\n") if line.strip() != "$$"))
    known = next((one for one in KNOWN if one.pattern.search(text)), None)
    if known is not None:
        return _named(known, piece)
    formula = formula_in(text)
    if not formula:
        return Part(kind=FRAGMENT.name, title="a formula that perfkit does not know", says=(text,))
    meaning = meaning_of(piece.plan, static="N" in formula)
    try:
        value = evaluate(formula, meaning.values)
    except InputError as error:
        return Part(kind=FRAGMENT.name, title="a formula", says=tuple(error.problems))
    return Part(
        kind=FRAGMENT.name,
        title="a formula of letters",
        says=(say("computed for {whom}", whom=meaning.of), _values(formula, meaning.values)),
        figures=(figure("value", value, unit_of(formula), "computed", formula),),
    )


def _named(known: _Known, piece: Piece) -> Part:
    problems: tuple[Problem, ...] = ()
    if known.erratum is not None:
        number, message, fix = known.erratum
        problems = (piece.problem(f"erratum-{number}", "warning", message, fix=fix),)
    figures: tuple[Figure, ...] = ()
    if piece.plan is not None and known.value is not None:
        try:
            found = estimate(piece.plan)
        except InputError:
            found = None
        if found is not None:
            figures = tuple(dict.fromkeys((known.value(piece.plan, found), _step(piece.plan, found))))
    return Part(kind=FRAGMENT.name, title=known.title, says=(known.says,), figures=figures, problems=problems)


def _values(formula: str, values: Mapping[str, float]) -> str:
    used = [
        name
        for name in values
        if re.search(rf"(?<![a-z]){re.escape(name)}|{re.escape(name)}(?![a-z])", formula) and name in formula
    ]
    return ", ".join(f"{name} = {format_entry(values[name])}" for name in used)


def _claims(line: str) -> bool:
    line = line.lstrip().removeprefix("#")
    return any(pattern.search(line) for pattern in (_MARK, _RULE, _EQUATION)) or bool(
        _LETTERS.match(line) and re.search(r"[bsh]{2,}|\dN", line)
    )


FRAGMENT = FragmentKind(
    name="formula",
    title="a formula",
    looks_for="lines between $$, or an equation of letters",
    order=35,
    claims=_claims,
    read=_read,
    alone=True,
    holds=lambda text, line: text.lstrip().startswith("$$") and text.count("$$") == 1,
)
