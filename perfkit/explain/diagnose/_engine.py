"""The engine: runs every rule over a run, and makes one list of what they say.

Rules whose tables the run lacks are not measured; one that raises is reported as failed, and the others still run. Findings come in
the order of their cost. A finding that another explains goes to the `next` of that one. Costs are joint and within their bounds
(`_prices`), and cut so that those of one step never sum to more than the step, nor those of one of its parts to more than that
part: time can be won only once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from perfkit.core import discover
from perfkit.core.errors import NotMeasuredError
from perfkit.core.run import Run
from perfkit.core.units import rounded
from perfkit.explain.diagnose import _prices, modules, other_job
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.own_words import in_own_words
from perfkit.explain.diagnose.rule import Diagnosis, Failed, Finding, Healthy, NotMeasured, Rule, Severity
from perfkit.explain.diagnose.thresholds import HIGH_SHARE, LEAST_SHARE, MEDIUM_SHARE, MIN_STEPS

FAR_FROM_ALL = 0.5
"""A finding explains a symptom if it costs at least this share of the symptom's cost."""
NEARLY_ALL = 0.75
"""And this share of the cost of one that has left out what is the finding's."""


def all_rules() -> tuple[Rule, ...]:
    """All rules, in the order of their names."""
    return discover.constants("perfkit.explain.diagnose.rules", "RULE")


def diagnose(
    run: Run,
    baseline: Run | None = None,
    *,
    limits: Mapping[str, float] | None = None,
    only: Sequence[Rule] | None = None,
) -> Diagnosis:
    """What is wrong with a run, by all rules or `only` some; with a `baseline` run also what became slower.

    `limits` replaces thresholds by name. A rule that raises is in `failed`, and the others still count.
    """
    return judged(Case(run, baseline, dict(limits or {})), only)


def judged(case: Case, only: Sequence[Rule] | None = None) -> Diagnosis:
    """As `diagnose`, of a case that its caller looks at further."""
    findings: list[Finding] = []
    small: list[Finding] = []
    healthy: list[Healthy] = []
    missing: list[NotMeasured] = []
    failed: list[Failed] = []
    chosen = all_rules() if only is None else tuple(only)
    for rule in chosen:
        try:
            lacking = tuple(sorted(table for table in rule.needs if not case.run.has(table)))
            if lacking:
                missing.append(NotMeasured(rule.name, lacking, in_own_words(case, rule.how_to_collect)))
                continue
            verdict = rule.check(case)
            within = [_prices.bounded(finding, case) for finding in verdict.findings]
            kept = _worth_telling(_prices.joint(within, case), case)
            small += [finding for finding in within if not kept and finding.loss is not None]
        except NotMeasuredError as error:
            missing.append(NotMeasured(rule.name, (error.missing,), in_own_words(case, error.how_to_collect)))
            continue
        except Exception as error:  # a defect of one rule must not take the others with it
            failed.append(Failed(rule.name, f"{type(error).__name__}: {error}"))
            continue
        findings += kept
        if not kept:
            healthy.append(Healthy(rule.name, verdict.evidence))
    masked = _prices.masked(small, findings, case, _least_told_ns(case))
    findings += masked
    healthy = [entry for entry in healthy if entry.rule not in {finding.rule for finding in masked}]
    priced = _prices.joint(_explained(findings, chosen, _least_told_ns(case)), case)
    ordered = _ordered([_prices.bounded(finding, case) for finding in priced])
    return Diagnosis(
        run=case.run.name,
        step_ns=case.step_ns,
        ledger=case.ledger,
        findings=tuple(modules.named(_judged(finding, case), case) for finding in _within_the_step(ordered, case)),
        healthy=tuple(healthy),
        not_measured=tuple(missing),
        failed=tuple(failed),
        unplaced=case.unplaced,
        notes=(*case.notes, *(other_job.told(case, Case(case.baseline)) if case.baseline is not None else ())),
    )


def _worth_telling(findings: Sequence[Finding], case: Case) -> list[Finding]:
    """Findings that cost too little are left out; those that cost no time at all, or that a rule has judged itself, stay."""
    least_ns = _least_told_ns(case)
    return [
        finding for finding in findings if finding.cost_ns is None or finding.severity is not None or finding.cost_ns >= least_ns
    ]


def _least_told_ns(case: Case) -> float:
    return case.limit(LEAST_SHARE) * (case.step_ns or 0)


def _explained(findings: Sequence[Finding], chosen: Sequence[Rule], least_told_ns: float) -> list[Finding]:
    """Findings without the symptoms of others, whose rules are named in the `next` of what explains them."""
    explains = {rule.name: rule.explains for rule in chosen}
    said_by = {rule.name: rule.symptom_of for rule in chosen}
    cause_of: dict[int, int] = {}
    every_cause: dict[int, list[int]] = {}

    def causes_of(cause: Finding, symptom: Finding) -> bool:
        # What a finding has left out is no symptom of it, if it is worth telling by itself.
        if symptom.rule in cause.apart_from and (symptom.cost_ns or 0) >= least_told_ns:
            return False
        least_ns = (NEARLY_ALL if cause.rule in symptom.apart_from else FAR_FROM_ALL) * (symptom.cost_ns or 0)
        return symptom.rule in explains.get(cause.rule, ()) and (cause.cost_ns or 0) >= least_ns

    for index, symptom in enumerate(findings):
        causes = [
            at
            for at, finding in enumerate(findings)
            if (finding.rule in said_by.get(symptom.rule, ()) and _may_share_ranks(finding, symptom))
            or (
                causes_of(finding, symptom)
                # Of two that explain each other and cost about the same, the one that explains less is the more exact.
                and not (causes_of(symptom, finding) and _exactness(explains, symptom) < _exactness(explains, finding))
            )
        ]
        if causes:
            cause_of[index] = max(causes, key=lambda at: findings[at].cost_ns or 0)
            every_cause[index] = causes
    told: dict[int, list[str]] = {}
    for index, causes in every_cause.items():
        for last in {_last_cause(at, cause_of) for at in causes} | {_last_cause(index, cause_of)}:
            if last != index:
                told.setdefault(last, []).append(findings[index].rule)
    return [
        replace(finding, next=tuple(dict.fromkeys((*told.get(at, ()), *finding.next))))
        for at, finding in enumerate(findings)
        if _last_cause(at, cause_of) == at
    ]


def _may_share_ranks(one: Finding, other: Finding) -> bool:
    """Whether two findings are about a rank that both name; one that names none may be about any."""
    mine, theirs = (set(finding.subject.get("ranks", ())) for finding in (one, other))
    return not mine or not theirs or bool(mine & theirs)


def _last_cause(index: int, cause_of: Mapping[int, int]) -> int:
    """The finding that explains another one, and is explained by none; of findings that explain one another each stays."""
    passed, at = {index}, index
    while (cause := cause_of.get(at)) is not None and cause not in passed:
        passed.add(cause)
        at = cause
    return index if cause_of.get(at) is not None else at


def _exactness(explains: Mapping[str, frozenset[str]], finding: Finding) -> tuple[int, str]:
    return len(explains[finding.rule]), finding.rule


def _ordered(findings: Sequence[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: (-(finding.cost_ns or -1), finding.rule))


def _within_the_step(findings: Sequence[Finding], case: Case) -> list[Finding]:
    """The findings with costs cut to what is left of the step and of the part that they are in.

    What hosts cost is idle time of their own devices and, at other moments, waiting of the others: no rank idles for all of it.
    """
    left = {"step": case.step_ns or 0, **case.part_ns}
    of_hosts_ns = _prices.hosts_ns(case)
    kept = []
    for finding in findings:
        if finding.cost_ns is None or not case.step_ns:
            kept.append(finding)
            continue
        most = left.get(finding.part, left["step"])
        if finding.part == "free":
            most, of_hosts_ns = max(most, of_hosts_ns), 0
        cost_ns = min(finding.cost_ns, left["step"], most)
        left["step"] -= cost_ns
        if finding.part in left and finding.part != "step":
            left[finding.part] = max(0, left[finding.part] - cost_ns)
        evidence = finding.evidence if cost_ns == finding.cost_ns else {**finding.evidence, "cost_alone_ns": finding.cost_ns}
        kept.append(replace(finding, cost_ns=cost_ns, evidence=evidence))
    return _ordered(kept)


def _judged(finding: Finding, case: Case) -> Finding:
    """The finding with its share of the step, and the severity that follows unless the rule has set one without a joint price.

    Fewer than three steps show no lasting cost: at most medium.
    """
    share = None if finding.cost_ns is None or not case.step_ns else finding.cost_ns / case.step_ns
    stated = None if finding.loss is not None and share is not None else finding.severity
    severity: Severity = stated or "low"
    many = len(case.step_numbers) >= case.limit(MIN_STEPS)
    if stated == "high" and finding.cost_ns is not None and not many:
        severity = "medium"
    if stated is None and share is not None:
        severity = "high" if share >= case.limit(HIGH_SHARE) and many else "medium" if share >= case.limit(MEDIUM_SHARE) else "low"
    return replace(finding, share_of_step=None if share is None else rounded(share, 6), severity=severity)
