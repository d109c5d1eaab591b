"""What a rule is, and what it can say: findings, healthy with evidence, or not measured.

A rule is a module in `rules/` with one constant RULE; its docstring is its page in the documentation. It judges one problem from
the tables of a run (`Case`), and says "healthy" only with numbers. Data that a table cannot show are a NotMeasuredError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from perfkit.core.display import html_table, text_table
from perfkit.core.shown import Shown
from perfkit.core.texts import joined
from perfkit.core.units import format_ns, significant

if TYPE_CHECKING:
    from perfkit.explain.diagnose.case import Case
    from perfkit.explain.ledger import Ledger

Severity = Literal["high", "medium", "low"]
Part = Literal["computing", "communication", "free", "step"]
"""The part of the step that a finding's cost is taken from."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """A limit of a rule: its value with unit, and who says so."""

    name: str
    value: float
    unit: str
    origin: str


@dataclass(frozen=True, slots=True, eq=False)
class Loss:
    """Time that would be gone without a cause, so that several causes can be priced together.

    `removed` has `rank`, `start_ns` on the clock of the rank, `duration_ns` and `fraction` (0 to 1 of it); `faster_ns` is by
    instance of a case's `members` how much faster the operation would be. In `removed` time the host `stops`, or not; `waits` are
    calls of it (`rank`, `start_ns`, `end_ns`) that would wait for nothing. `alone` is a loss of devices,
    priced without their hosts.
    """

    removed: pd.DataFrame
    faster_ns: Mapping[int, float] = field(default_factory=dict)
    stops: bool = False
    waits: pd.DataFrame | None = None
    alone: bool = False


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Finding:
    """A problem: whom it concerns, the numbers that show it, and what it costs a step.

    `subject` has lists under `ranks`, `links`, `operators`, `stages` or others; names in `evidence` carry their unit. `cost_ns` is
    the time that a step would win without it, None where it costs no time; `part` says which part of the step that time is in,
    `loss` what exactly would be gone, where the rule knows: then its price is shared with others that win the same time.
    `next` names pages and rules to look at, also rules whose findings this one explains. `apart_from` are rules whose share of the
    time the finding has left out already: one explains the other if it costs about as much.
    """

    rule: str
    title: str
    subject: Mapping[str, tuple[Any, ...]]
    evidence: Mapping[str, float]
    actions: tuple[str, ...]
    cost_ns: int | None = None
    share_of_step: float | None = None
    severity: Severity | None = None
    next: tuple[str, ...] = ()
    part: Part = "step"
    loss: Loss | None = None
    apart_from: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for name in ("subject", "evidence"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    def __repr__(self) -> str:
        return text_table(*self._shown())

    def _repr_html_(self) -> str:
        return html_table(*self._shown())

    def _shown(self) -> tuple[str, list[tuple[str, str]]]:
        """What a notebook shows: the numbers with their units in their names, whom it concerns, what to do."""
        cost = [] if self.cost_ns is None else [("costs a step", format_ns(self.cost_ns))]
        whom = [(name, ", ".join(map(str, which))) for name, which in self.subject.items()]
        numbers = [(name, significant(value)) for name, value in self.evidence.items()]
        title = f"{self.severity or 'finding'}: {self.title} ({self.rule})"
        return title, [*cost, *whom, *numbers, *(("do", action) for action in self.actions)]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a rule found. No finding and evidence: healthy; the evidence says how far from the thresholds."""

    findings: tuple[Finding, ...]
    evidence: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Rule:
    """One problem: what it needs of a run, its thresholds, and how it is recognised.

    `needs` are tables of the run, `how_to_collect` says how to record them. `explains` names rules whose findings are symptoms of
    this one: they go to its `next` where this one costs at least as much. `symptom_of` names rules that say the same more exactly:
    where one of them has a finding, this one goes to its `next`.
    """

    name: str
    title: str
    needs: frozenset[str]
    how_to_collect: str
    thresholds: tuple[Threshold, ...]
    check: Callable[[Case], Verdict]
    explains: frozenset[str] = frozenset()
    symptom_of: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Healthy:
    """A rule that found nothing, with the numbers that say so."""

    rule: str
    evidence: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class NotMeasured:
    """A rule that the run cannot answer: what is missing and how to collect it."""

    rule: str
    missing: tuple[str, ...]
    how_to_collect: str


def by_recording(entries: Iterable[NotMeasured]) -> dict[str, tuple[NotMeasured, ...]]:
    """What was not measured by how to collect it: what one more recording would answer, the one that answers most first."""
    found: dict[str, list[NotMeasured]] = {}
    for entry in entries:
        found.setdefault(entry.how_to_collect, []).append(entry)
    return {how: tuple(found[how]) for how in sorted(found, key=lambda how: -len(found[how]))}


@dataclass(frozen=True, slots=True)
class Failed:
    """A rule with a defect: it raised an error, which is a bug of perfkit and no property of the run."""

    rule: str
    error: str


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Diagnosis(Shown):
    """All verdicts over one run: `findings` in the order of their cost, and what was healthy, not measured or failed.

    `ledger` says where every ns of the judged steps went, also what no finding is about; `unplaced` how much of the
    recording has no step, or members that were not read.
    """

    run: str
    step_ns: int | None
    ledger: Ledger
    findings: tuple[Finding, ...] = ()
    healthy: tuple[Healthy, ...] = ()
    not_measured: tuple[NotMeasured, ...] = ()
    failed: tuple[Failed, ...] = ()
    unplaced: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = field(default=())

    def __repr__(self) -> str:
        cost = ["" if one.cost_ns is None else format_ns(one.cost_ns) for one in self.findings]
        rows = [(one.rule, text, one.title) for one, text in zip(self.findings, cost, strict=True)]
        return text_table(f"Diagnosis of {self.run}: {len(rows)} findings. {self.ledger.told()}", rows)

    def to_frame(self) -> pd.DataFrame:
        """One row a finding, costliest first: `finding` (its rule), `severity`, `title`, `cost_ns`, `share_of_step`, `actions`."""
        columns = ("rule", "severity", "title", "cost_ns", "share_of_step", "actions")
        rows = [[*(getattr(one, name) for name in columns[:-1]), joined(one.actions, "; ")] for one in self.findings]
        frame = pd.DataFrame(rows, columns=["finding", *columns[1:]])
        frame.attrs["look"] = "none"  # a page has its findings in a step of their own, with what was made of them
        return frame

    def told(self) -> tuple[str, ...]:
        """How much of the judged steps has a cause, and what is to be known beside it."""
        note = "This run is simulated; its findings are about the plan and the faults that were put in."
        return (self.ledger.told(), *self.notes, *([note] if self.ledger.kind == "simulated" else []))
