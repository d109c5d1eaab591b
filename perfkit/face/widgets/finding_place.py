"""Finding places: where on a timeline the evidence of a finding shows best, the slice that shows it, and links to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from perfkit.core.run import Run
from perfkit.core.texts import t
from perfkit.explain.diagnose import Finding
from perfkit.face.widgets.navigation import page_link
from perfkit.face.widgets.page_state import page_state
from perfkit.face.widgets.values import Value

MAX_RANKS = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A window of the common clock; `ranks` to show in it, and of the first of them the `stream`, `name` and start of a slice.

    Without a slice `name` is the empty text.
    """

    ranks: tuple[int, ...]
    start_ns: int
    end_ns: int
    stream: str = ""
    name: str = ""
    at_ns: int = 0

    @property
    def address(self) -> dict[str, object]:
        """The window and what to select in it, as the address of the timeline has them."""
        chosen = f"{self.ranks[0]}|{self.stream}|{self.at_ns}|{self.name}" if self.name else str(self.ranks[0])
        return {"from": self.start_ns, "to": self.end_ns, "show": chosen}


def place_of(run: Run, finding: Finding) -> Place | None:
    """The longest kernel that a finding names, the longest collective of its groups or links, else its step or the longest one.

    A slice is shown with as much on both sides. None if nothing of it was recorded with a time.
    """
    ranks = _ranks(run, finding)
    if not ranks:
        return None
    rank, shift = ranks[0], run.clock.get(ranks[0], 0)
    row = _longest(_kernels(run, rank, finding)) or _longest(_collectives(run, rank, finding))
    if row is None:
        steps = run.frame("steps", ranks=[rank], columns=["step", "start_ns", "duration_ns"])
        named = steps[steps["step"].isin([int(step) for step in finding.subject.get("steps", ())])]
        step = _longest(named) or _longest(steps)
        if step is None:
            return None
        start_ns = int(step["start_ns"]) + shift
        return Place(ranks=ranks, start_ns=start_ns, end_ns=start_ns + int(step["duration_ns"]))
    start_ns, length_ns = int(row["start_ns"]) + shift, int(row["duration_ns"])
    return Place(
        ranks=ranks,
        start_ns=start_ns - length_ns,
        end_ns=start_ns + 2 * length_ns,
        stream="" if pd.isna(row.get("stream")) else str(row["stream"]),
        name=str(row["name"]),
        at_ns=start_ns,
    )


def _ranks(run: Run, finding: Finding) -> tuple[int, ...]:
    """The ranks of a finding that were recorded, beside them others to compare with; the first is the one that it is about."""
    named = [int(rank) for rank in finding.subject.get("ranks", ())]
    ends = [int(end) for link in finding.subject.get("links", ()) for end in link]
    rank = first_rank(finding)
    chosen = [each for each in dict.fromkeys([*([] if rank is None else [rank]), *named, *ends]) if each in run.ranks]
    others = [each for each in run.ranks if each not in chosen]
    return tuple([*chosen, *others][: max(2, min(len(chosen), MAX_RANKS))])


def _kernels(run: Run, rank: int, finding: Finding) -> pd.DataFrame:
    """The kernels of the operators of a finding, which are names or types."""
    names = set(finding.subject.get("operators", ())) | set(finding.subject.get("kernels", ()))
    rows = run.frame("kernels", ranks=[rank], columns=["name", "type", "stream", "start_ns", "duration_ns"])
    return rows[rows["name"].astype(str).isin(names) | rows["type"].astype(str).isin(names)]


def _collectives(run: Run, rank: int, finding: Finding) -> pd.DataFrame:
    """The collectives of the groups of a finding, or of all where it names links."""
    rows = run.frame("collectives", ranks=[rank], columns=["name", "group", "start_ns", "duration_ns"])
    groups = set(finding.subject.get("groups", ()))
    if not groups and not finding.subject.get("links"):
        return rows.head(0)
    return rows[rows["group"].astype(str).isin(groups)] if groups else rows


def _longest(rows: pd.DataFrame) -> dict[str, Any] | None:
    timed = rows[rows["start_ns"].notna() & rows["duration_ns"].notna()]
    if timed.empty:
        return None
    row: Any = timed.iloc[int(timed["duration_ns"].astype("int64").to_numpy().argmax())].to_dict()
    return dict(row)


def first_rank(finding: Finding) -> int | None:
    """A rank that a finding concerns, to open other pages with."""
    ranks = [*finding.subject.get("ranks", ()), *(end for link in finding.subject.get("links", ()) for end in link)]
    return int(ranks[0]) if ranks else None


def ranks_concerned(findings: Sequence[Finding], name: str = "") -> tuple[int, ...]:
    """The ranks that the finding called `name` is about, ends of its links among them; empty if it is about none or all."""
    for known, finding in zip(finding_names(findings), findings, strict=True):
        if known == name:
            ends = (end for link in finding.subject.get("links", ()) for end in link)
            return tuple(dict.fromkeys(int(rank) for rank in (*finding.subject.get("ranks", ()), *ends)))
    return ()


def chosen_finding() -> Value:
    """The name of the finding that was chosen on this page, or that the link to it names; empty before."""
    state = page_state()
    value, known = Value("The costliest findings"), [state.get("finding")]
    value.finish(value.question(), known[0])

    def follow(values: Mapping[str, str], _origin: object) -> None:
        if (name := values.get("finding", "")) != known[0]:
            known[0] = name
            value.begin()
            value.finish(value.question(), name)

    state.on_change(follow)
    return value


def finding_names(findings: Sequence[Finding]) -> tuple[str, ...]:
    """A name a finding, which stays the same in an address: its rule, with a number from the second one on."""
    seen: dict[str, int] = {}
    names = []
    for finding in findings:
        seen[finding.rule] = seen.get(finding.rule, 0) + 1
        names.append(finding.rule if seen[finding.rule] == 1 else f"{finding.rule}-{seen[finding.rule]}")
    return tuple(names)


def timeline_link(run: Run, path: str, finding: Finding) -> str:
    """The timeline where a finding shows, with its slice or the lanes of its rank selected; "" if nothing has a time."""
    place = place_of(run, finding)
    return "" if place is None else page_link("14_timeline", run=path, **place.address)


def costliest(run: Run, path: str, findings: Sequence[Finding], most: int = 3) -> pd.DataFrame:
    """The first findings, each with what it costs, what to do, and links to its evidence and to its place on the timeline.

    Columns: `finding` (its name in addresses), `what`, `cost_ns`, `of_step_ratio`, `what_to_do`, `see`.
    """
    shown = findings[:most]
    names = finding_names(findings)[:most]
    frame = pd.DataFrame(
        {
            "finding": names,
            "what": [finding.title for finding in shown],
            "cost_ns": [finding.cost_ns for finding in shown],
            "of_step_ratio": [finding.share_of_step for finding in shown],
            "what_to_do": [finding.actions[0] if finding.actions else "" for finding in shown],
        }
    ).dropna(axis="columns", how="all")
    places = [timeline_link(run, path, finding) for finding in shown]
    frame["see"] = [t("timeline") if place else "" for place in places]
    frame.attrs["links"] = {
        "finding": [page_link("20_findings", run=path, finding=name) for name in names],
        "see": places,
    }
    return frame
