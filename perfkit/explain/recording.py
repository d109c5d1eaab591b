"""Recording: what is in a run, what is missing or was lost, and whether its numbers agree with one another."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from perfkit.config.collect import PARTS, how_to_collect
from perfkit.core import placement, quantity
from perfkit.core.run import Run
from perfkit.core.texts import Said, joined, say
from perfkit.record.recognise import formats

_FRAMEWORKS = {
    "ascend-text": "torch-npu",
    "kineto": "pytorch",
    "torch-memory-snapshot": "pytorch",
    "torch-memory-timeline": "pytorch",
    "mindinsight": "mindspore",
    "mindformers-log": "mindformers",
    "megatron-log": "megatron",
    "torchtitan-log": "pytorch",
}
"""By format the framework whose lines record it; what the profiler itself says goes before."""


def recording_told(run: Run, *, num_expected: int | None = None) -> Said:
    """Whether all of a run was read and adds up, its ranks and steps, and how much is missing, in a line.

    `num_expected` is how many ranks the job has; None or 0: as many as the run says itself. Ranks that are not there come first.
    Kinds of data are those of `coverage_shown`.
    """
    ranks, steps, missing = len(run.ranks), run.frame("steps")["step"].nunique(), ranks_missing(run, num_expected=num_expected)
    kinds = _is_held(coverage_shown(run))
    held = int(kinds.sum())
    counted = say(
        "{steps}, with {held} of {parts} kinds of data." if held else "{steps}.",
        steps=say("{steps} step" if steps == 1 else "{steps} steps", steps=str(steps)),
        held=str(held),
        parts=str(len(kinds)),
    )
    if missing:
        form = "Only {ranks} of {expected} ranks is here: {counted}" if ranks == 1 else _ONLY
        only = say(form, ranks=str(ranks), expected=str(ranks + len(missing)), counted=counted)
        return joined([only, *_read_told(run)])
    form = "What is there: {ranks} rank, {counted}" if ranks == 1 else "What is there: {ranks} ranks, {counted}"
    return joined([*_read_told(run), say(form, ranks=str(ranks), counted=counted)])


_ONLY = "Only {ranks} of {expected} ranks are here: {counted}"


def _read_told(run: Run) -> tuple[str, ...]:
    """Whether all of a run was read and adds up, in sentences."""
    rest_ns = largest_rest_ns(run)
    if run.dropped:
        return run.lost_told
    if rest_ns is None:
        return ("Nothing was dropped.",)
    if rest_ns:
        return (say("Nothing was dropped, but parts miss their step by up to {rest_ns}.", rest_ns=rest_ns),)
    return ("Nothing was dropped, and parts sum to their step exactly.",)


def recording_notes(run: Run, *, num_expected: int | None = None) -> list[str]:
    """What is to be known before a run is trusted: format, size, how it was read, ranks that are not there."""
    log = run.format.endswith("-log")
    title = next((format.title for format in formats() if format.name == run.format), run.format)
    size = int(run.frame("coverage")["bytes"].sum())
    notes: list[str] = [say("{title}, {bytes} of files.", title=title, bytes=size) if size else say("{title}.", title=title)]
    if run.dropped and (rest_ns := largest_rest_ns(run)) is not None:
        sums = "Parts miss their step by up to {rest_ns}." if rest_ns else "The parts of every step sum to it exactly."
        notes.append(say(sums, rest_ns=rest_ns))
    notes += [*run.notes, "This is a training log: page 01 shows its step times." if log else _PROFILED]
    return [*notes, *ranks_missing_told(run, num_expected=num_expected)]


def ranks_missing_told(run: Run, *, num_expected: int | None = None) -> list[str]:
    """How many ranks of the job a run does not have, and what stays unseen so, in a sentence; none where all are there."""
    missing = ranks_missing(run, num_expected=num_expected)
    if not missing:
        return []
    form = "{num} of {expected} ranks is not here: if it is slow, that stays unseen." if len(missing) == 1 else _NOT_HERE
    return [say(form, num=str(len(missing)), expected=str(len(run.ranks) + len(missing)))]


_NOT_HERE = "{num} of {expected} ranks are not here: a slow rank among them stays unseen."
_PROFILED = "Profiling slows a step: compare its length with the log of an unprofiled run."


def largest_rest_ns(run: Run) -> int | None:
    """The largest difference between a step and the sum of its parts, in ns; None if the parts are not known."""
    if not run.has("step_parts"):
        return None
    sums = run.frame("step_parts").groupby(["rank", "step"])["amount_ns"].sum().rename("sum_ns").reset_index()
    both = run.steps().merge(sums, on=["rank", "step"])
    return int((both["duration_ns"] - both["sum_ns"]).abs().max())


def coverage_shown(run: Run) -> pd.DataFrame:
    """Which rank recorded which kind of data: the table `coverage`, with the kinds that can be recorded and are in no file of it.

    These are present on the ranks that have rows of them, whatever file they were read from, and missing on the others.
    """
    coverage = run.frame("coverage").astype({"part": "object", "state": "object"})
    held, rows = _is_held(coverage), []
    for part in PARTS:
        table = _TABLE_OF.get(part, "")
        has_rows = not held.get(part, False) and bool(table) and run.has(table)
        if part in held and not has_rows:
            continue
        coverage = coverage[coverage["part"] != part]
        ranks = set(run.frame(table, columns=["rank"])["rank"]) if has_rows else set()
        rows += [{"rank": rank, "part": part, "state": "present" if rank in ranks else "missing"} for rank in run.ranks]
    return pd.concat([coverage, pd.DataFrame(rows, columns=coverage.columns)], ignore_index=True) if rows else coverage


def _is_held(coverage: pd.DataFrame) -> pd.Series[bool]:
    """By kind of data, whether any rank has it."""
    return coverage["state"].isin(["present", "partial"]).groupby(coverage["part"], sort=False).any()


def missing_parts(run: Run) -> tuple[str, ...]:
    """The parts that no rank has recorded, in the order of `perfkit.config.collect.PARTS`."""
    held = _is_held(coverage_shown(run))
    return tuple(part for part in PARTS if not held.get(part, False))


_TABLE_OF = {
    "step times": "steps",
    "kernels": "kernels",
    "collectives": "collectives",
    "links": "links",
    "host calls": "host",
    "memory curve": "memory_curve",
    "layout": "groups",
}
"""The table that holds a kind of data, whatever file it was read from."""


def framework_of(run: Run) -> str | None:
    """Which of the frameworks to collect with recorded a run: what its profiler says, else its format; None if neither does."""
    stated = run.facts.get("profiler")
    if stated is None:
        return _FRAMEWORKS.get(run.format)
    return "torch-npu" if str(stated.value).startswith("torch_npu") else "mindspore"


def missing_told(run: Run) -> str:
    """What was not recorded, in a sentence."""
    missing = missing_parts(run)
    if not missing:
        return "Every kind of data is there."
    return say("Not recorded: {missing}. The table says how to record each.", missing=joined(missing, ", "))


def missing_table(run: Run) -> pd.DataFrame:
    """What was not recorded, and the lines that record it with the framework of the run."""
    framework = framework_of(run)
    rows = [{"not recorded": part, "how to collect it": how_to_collect(part, framework)} for part in missing_parts(run)]
    return pd.DataFrame(rows, columns=["not recorded", "how to collect it"])


def dropped_table(run: Run) -> pd.DataFrame:
    """What could not be read: `count`, `what`, `file`."""
    rows = [{"count": drop.count, "what": drop.what, "file": drop.file} for drop in run.dropped]
    return pd.DataFrame(rows, columns=["count", "what", "file"])


def facts_told(run: Run) -> str:
    """How much a run says about its job, in a sentence."""
    num = len(run.facts)
    return say("Facts about the job that the recording states: {num}.", num=str(num)) if num else "Nothing: it holds times alone."


def facts_table(run: Run) -> pd.DataFrame:
    """What a run says about its job: `setting`, `value`, `where from`."""
    facts = run.facts.items()
    rows = [{"setting": name, "value": quantity.text(name, fact.value), "where from": fact.source.where} for name, fact in facts]
    return pd.DataFrame(rows, columns=["setting", "value", "where from"])


def ranks_recorded(run: Run) -> pd.DataFrame:
    """One row a rank: its steps, rows of kernels and collectives, size of its files, and place where known."""
    steps, rows, files = run.steps(), [], run.frame("coverage").groupby("rank")["bytes"].sum()
    for rank in run.ranks:
        own, position = steps[steps["rank"] == rank], run.placement.get(rank)
        rows.append(
            {
                "rank": rank,
                "steps": len(own),
                "first step": int(own["step"].min()) if len(own) else None,
                "last step": int(own["step"].max()) if len(own) else None,
                "kernels": len(run.frame("kernels", ranks=[rank], columns=["rank"])),
                "collectives": len(run.frame("collectives", ranks=[rank], columns=["rank"])),
                "files_bytes": files.get(rank),
                "pipeline stage": position.pipeline if position else None,
                "tensor": position.tensor if position else None,
                "data": position.data if position else None,
            }
        )
    return pd.DataFrame(rows).dropna(axis="columns", how="all")


def ranks_missing(run: Run, *, num_expected: int | None = None) -> tuple[int, ...]:
    """The ranks of the job that a run does not have: of `num_expected`, else as many as it states, else that it links or groups."""
    stated, own = run.facts.get("num_devices"), run.ranks
    if expected := num_expected or (int(stated.value) if stated is not None else 0):
        return _beside(own, range(expected))[: max(0, expected - len(own))]
    named = {rank for text in run.distinct("groups", columns=["members"])["members"] for rank in placement.members_of(text)}
    ends = run.distinct("links", columns=["source_rank", "target_rank"])
    return _beside(own, {*named, *map(int, ends.to_numpy().ravel()), *range(max(own) if len(own) > 1 else 0)})


def _beside(own: Iterable[int], ranks: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(set(ranks).difference(own)))
