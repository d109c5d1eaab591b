"""Told: a diagnosis in sentences and tables: its findings, the evidence of one of them, what is healthy, what was not measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from perfkit.core import quantity
from perfkit.core.errors import NotMeasuredError
from perfkit.core.looks import folded
from perfkit.core.run import Run
from perfkit.core.shortening import shortened
from perfkit.core.texts import say, told, within
from perfkit.explain.diagnose import Diagnosis, Finding, all_rules
from perfkit.explain.diagnose.reported import cost_text
from perfkit.explain.diagnose.rule import by_recording
from perfkit.explain.diagnose.thresholds import HIGH_SHARE, MIN_STEPS

MOST_RANKS = 12
ONE_LINE = 70
"""Letters of a finding's title that a sentence with its cost has room for; of a longer one the rule is named."""
OPEN = "open"
OVERLAP = "Causes overlap. Each cost is cut to what the costlier ones leave, so that they never sum to more than the step."


def finding_names(findings: Sequence[Finding]) -> tuple[str, ...]:
    """A name a finding, which stays the same in an address: its rule, with a number from the second one on."""
    seen: dict[str, int] = {}
    names = []
    for finding in findings:
        seen[finding.rule] = seen.get(finding.rule, 0) + 1
        names.append(finding.rule if seen[finding.rule] == 1 else f"{finding.rule}-{seen[finding.rule]}")
    return tuple(names)


def finding_of(diagnosis: Diagnosis, row: Mapping[str, Any] | None) -> Finding | None:
    """The finding that a table's row is about, by its name in the column `finding`; None without a row or of another recording."""
    named = dict(zip(finding_names(diagnosis.findings), diagnosis.findings, strict=True))
    return None if row is None else named.get(str(row["finding"]))


def ranks_of(finding: Finding) -> tuple[int, ...]:
    """The ranks that a finding is about, ends of its links among them; empty if it is about none or all."""
    ends = (end for link in finding.subject.get("links", ()) for end in link)
    return tuple(dict.fromkeys(int(rank) for rank in (*finding.subject.get("ranks", ()), *ends)))


def findings_told(diagnosis: Diagnosis, listed: Sequence[str], status: str = OPEN) -> tuple[str, ...]:
    """The first of the findings that are `listed` by name with this status, what to do about it, and how many there are."""
    count = len(diagnosis.findings)
    if not count:
        return (_nothing_told(diagnosis),)
    many = count > 1
    all_of_them = say("{count} findings" if many else "{count} finding", count=count)
    cost_ns = sum(finding.cost_ns or 0 for finding in diagnosis.findings)
    if cost_ns and diagnosis.step_ns:
        form = "{findings}, together at most {cost_ns} of the mean step ({share})"
        all_of_them = say(form, findings=all_of_them, cost_ns=cost_ns, share=cost_ns / diagnosis.step_ns)
    first = next((finding_of(diagnosis, {"finding": name}) for name in listed), None)
    if first is None:
        return (say("{findings}; none of them is {status}.", findings=all_of_them, status=status),)
    notes = (say("{findings}.", findings=all_of_them), *_few_steps_told(diagnosis, first), *([OVERLAP] if many else []))
    return (_first_told(first, status), *_action_told(first), *notes)


def _nothing_told(diagnosis: Diagnosis) -> str:
    """That no rule found anything, by how many that could judge."""
    if not diagnosis.healthy:
        return "No rule could judge this recording: see below what to record."
    form = "Nothing to change was found. Rules that judged it: {healthy}; that lack what was not recorded: {missing}, see below."
    return say(form, healthy=len(diagnosis.healthy), missing=len(diagnosis.not_measured))


def _first_told(finding: Finding, status: str) -> str:
    """What comes first among the findings of a status, and what it costs."""
    if finding.cost_ns is None:
        form = (
            "Look at this first, of no known cost in time: {what}." if status == OPEN else "First here, of no known cost: {what}."
        )
        return say(form, what=briefly(finding))
    begin = "Change this first" if status == OPEN else "The costliest here"
    if finding.share_of_step is None:
        return say("{begin}, {cost_ns}: {what}.", begin=say(begin), cost_ns=finding.cost_ns, what=briefly(finding))
    form = "{begin}, {cost_ns} of the mean step ({share}): {what}."
    return say(form, begin=say(begin), cost_ns=finding.cost_ns, share=finding.share_of_step, what=briefly(finding))


def _action_told(finding: Finding) -> tuple[str, ...]:
    return tuple(say("What to do: {action}.", action=action) for action in finding.actions[:1])


def action_told(diagnosis: Diagnosis, left: Sequence[Finding]) -> str:
    """What to do first of all that findings advise which are `left` to do."""
    if left:
        return next(iter(_action_told(left[0])), say("{title}.", title=left[0].title))
    if diagnosis.findings:
        return "Every finding was dismissed or is done: page 20 lists them."
    if not diagnosis.healthy:
        return "No rule could judge this recording."
    return "No rule that could judge this recording found a problem: page 20 says which."


def briefly(finding: Finding) -> str:
    """What a finding says within a sentence that has room for it; else what its rule is about."""
    if len(finding.title) <= ONE_LINE:
        return within(finding.title)
    return next((within(say(rule.title)) for rule in all_rules() if rule.name == finding.rule), shortened(finding.title, ONE_LINE))


def _few_steps_told(diagnosis: Diagnosis, finding: Finding) -> tuple[str, ...]:
    """Why a finding that costs as much as a high one is medium, if it is for too few steps."""
    count, least = diagnosis.ledger.entries["step"].nunique(), int(MIN_STEPS.value)
    if finding.severity != "medium" or (finding.share_of_step or 0) < HIGH_SHARE.value or not 0 < count < least:
        return ()
    one = "Medium, not high: {count} step was judged, and only {least} or more show what lasts."
    more = "Medium, not high: {count} steps were judged, and only {least} or more show what lasts."
    return (say(one if count == 1 else more, count=count, least=least),)


def step_told(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Why the step is longer than the mean step of a rank, and which of the two costs are of; nothing where they are one."""
    mean_ns, longest_ns = int(diagnosis.ledger.waterfall()["ns"].sum()), diagnosis.step_ns
    if longest_ns is None or quantity.text("ns", longest_ns) == quantity.text("ns", mean_ns):
        return ()
    alone = "The step itself, {step_ns}, is as long as its slowest rank."
    of_costs = "The step itself, {step_ns}, is as long as its slowest rank; what a finding costs is a part of that."
    return (say(of_costs if diagnosis.findings else alone, step_ns=longest_ns),)


def finding_told(finding: Finding) -> str:
    """What is wrong, and what it costs a step."""
    return say("{title}. That {cost}.", title=finding.title, cost=cost_text(finding))


def evidence_table(finding: Finding) -> pd.DataFrame:
    """The numbers of a finding with their units, as text: `what` and `value`."""
    return folded(_titled(_figures(finding.evidence), "The numbers that show it"))


def advice_table(finding: Finding) -> pd.DataFrame:
    """What to do about a finding, and which rules it explains or goes with: `number` and `what_to_do`."""
    rules = ", ".join(name for name in finding.next if not name[:2].isdigit())
    advice = [*finding.actions, *([say("it also explains or goes with: {rules}", rules=rules)] if rules else [])]
    return _titled(pd.DataFrame({"number": range(1, len(advice) + 1), "what_to_do": advice}), "What to do about it")


def parts_beside(run: Run, finding: Finding) -> pd.DataFrame:
    """The rows of the table `step_parts` of one step: of the ranks that a finding is about and of some beside them, by rank.

    The step is the first that the finding names, else the last one. Raises NotMeasuredError if it is not known what steps are
    made of.
    """
    parts = run.frame("step_parts")
    if parts.empty:
        raise NotMeasuredError("what a step is made of", how_to_collect="record a profile of two to four steps")
    present = sorted(int(rank) for rank in parts["rank"].unique())
    mine = [rank for rank in ranks_of(finding) if rank in present][:MOST_RANKS]
    shown = [*mine, *[rank for rank in present if rank not in mine][: max(2, MOST_RANKS - len(mine))]]
    named = [int(step) for step in finding.subject.get("steps", ()) if step in set(parts["step"])]
    step = named[0] if named else int(parts["step"].max())
    rows = parts[parts["rank"].isin(shown) & (parts["step"] == step)]
    return rows.sort_values("rank", kind="stable", ignore_index=True)


def judged_told(diagnosis: Diagnosis) -> str:
    """How many rules found nothing wrong, and how many could not judge."""
    form = "{healthy} rules found nothing wrong; {missing} could not judge what was not recorded."
    return say(form, healthy=len(diagnosis.healthy), missing=len(diagnosis.not_measured))


def healthy_table(diagnosis: Diagnosis) -> pd.DataFrame:
    """The rules that found nothing, with the numbers that say so: `rule`, `about`, `evidence`."""
    titles = {rule.name: rule.title for rule in all_rules()}
    rows = [(entry.rule, titles.get(entry.rule, ""), _in_words(entry.evidence)) for entry in diagnosis.healthy]
    return _titled(pd.DataFrame(rows, columns=["rule", "about", "evidence"]), "Healthy, with the numbers that say so")


def missing_table(diagnosis: Diagnosis) -> pd.DataFrame:
    """What one more recording would answer, the one that answers most first: `how_to_collect_it`, `would_answer`."""
    found = by_recording(diagnosis.not_measured)
    rows = [(how, ", ".join(entry.rule for entry in entries)) for how, entries in found.items()]
    return _titled(pd.DataFrame(rows, columns=["how_to_collect_it", "would_answer"]), "Not measured, and how to collect it")


def unplaced_table(diagnosis: Diagnosis) -> pd.DataFrame:
    """What of the recording has no step or no cause because it was not recorded, as text: `what` and `value`."""
    return _titled(_figures(diagnosis.unplaced), "Not told apart")


def failed_table(diagnosis: Diagnosis) -> pd.DataFrame:
    """Rules with a defect: `rule` and `error`."""
    rows = [(entry.rule, entry.error) for entry in diagnosis.failed]
    return _titled(pd.DataFrame(rows, columns=["rule", "error"]), "Rules that failed (a bug of perfkit)")


def _figures(numbers: Mapping[str, float]) -> pd.DataFrame:
    rows = [(quantity.label(name), quantity.text(name, value, absent="not known")) for name, value in numbers.items()]
    return pd.DataFrame(rows, columns=["what", "value"])


def _in_words(evidence: Mapping[str, float]) -> str:
    """Numbers in one line, in the language of the page."""
    numbers = [f"{told(quantity.label(name))} {quantity.text(name, value, absent='not known')}" for name, value in evidence.items()]
    return ", ".join(numbers) or "no numbers"


def _titled(frame: pd.DataFrame, title: str) -> pd.DataFrame:
    frame.attrs["title"] = title
    return frame
