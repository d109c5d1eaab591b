"""Finding places: where on a timeline the evidence of a finding shows best, the slice that shows it, and links to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from perfkit import __version__
from perfkit.core import settings
from perfkit.core.resources import Page, pages
from perfkit.core.run import Run
from perfkit.core.texts import t
from perfkit.explain.diagnose import Diagnosis, Finding
from perfkit.explain.diagnose.reported import bug_report, hypothesis
from perfkit.explain.diagnose.told import advice_table, finding_names, ranks_of
from perfkit.face.widgets.answer import Code
from perfkit.face.widgets.navigation import page_link
from perfkit.face.widgets.page_state import page_state
from perfkit.face.widgets.values import Value

MAX_RANKS = 4
PAGE_OF_SUBJECT = {"links": "13", "groups": "13", "stages": "06", "operators": "12", "kernels": "12", "ranks": "17"}
"""The page that shows a subject, for findings that name no page themselves."""
STEP_PAGE, TIMELINE = "11", "14"


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
    chosen = [rank for rank in ranks_of(finding) if rank in run.ranks]
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


def ranks_concerned(findings: Sequence[Finding], name: str = "") -> tuple[int, ...]:
    """The ranks that the finding called `name` is about, as `ranks_of` has them; empty if there is none of that name."""
    named = dict(zip(finding_names(findings), findings, strict=True))
    return ranks_of(named[name]) if name in named else ()


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


def timeline_link(run: Run, path: str, finding: Finding) -> str:
    """The timeline where a finding shows, with its slice or the lanes of its rank selected; "" if nothing has a time."""
    place = place_of(run, finding)
    return "" if place is None else page_link("14_timeline", run=path, **place.address)


def costliest(run: Run, path: str, findings: Mapping[str, Finding], most: int = 3) -> pd.DataFrame:
    """The first findings, by name, each with what it costs, what to do, and links to its evidence and to its place on the timeline.

    Columns: `finding` (its name in addresses), `what`, `cost_ns`, `of_step_ratio`, `what_to_do`, `see`.
    """
    names, shown = list(findings)[:most], list(findings.values())[:most]
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


def pages_of(finding: Finding) -> tuple[Page, ...]:
    """The pages that show a finding's evidence: those that it names and that exist, else the one of its subject."""
    known = {page.number: page for page in pages(settings.pages_folder())}
    named = [known[name[:2]] for name in finding.next if name[:2] in known]
    by_subject = [known[number] for name, number in PAGE_OF_SUBJECT.items() if name in finding.subject and number in known]
    found = dict.fromkeys([*named, *by_subject] or [known[number] for number in (STEP_PAGE,) if number in known])
    return tuple(found)


def evidence_pages(run: Run, path: str, finding: Finding) -> pd.DataFrame:
    """Links to the pages that show a finding, with the recording and its first rank in their address: `page` and `shows`.

    The timeline opens at the place where the finding shows, with its slice selected.
    """
    first = ranks_of(finding)[:1]
    place: dict[str, object] = {"run": path, "rank": first[0]} if first else {"run": path}
    shown = [page for page in pages_of(finding) if page.number != TIMELINE]
    rows = [(t(page.title), t("its evidence"), page_link(page.name, **place)) for page in shown]
    title = next((page.title for page in pages(settings.pages_folder()) if page.number == TIMELINE), "")
    if title and (link := timeline_link(run, path, finding)):
        rows.append((t(title), t("its place on the timeline"), link))
    frame = pd.DataFrame([row[:2] for row in rows], columns=["page", "shows"])
    frame.attrs |= {"title": "Pages that show it", "links": {"page": [link for *_, link in rows]}}
    return frame


def evidence_card(run: Run, path: str, finding: Finding) -> pd.DataFrame:
    """What to do about a finding and where it shows, as one table: `what` and `value`, which leads to a page."""
    advice, seen = advice_table(finding)["what_to_do"].tolist(), evidence_pages(run, path, finding)
    rows = [*((str(number), text, "") for number, text in enumerate(advice, 1))]
    rows += zip(seen["shows"], seen["page"], seen.attrs["links"]["page"], strict=True)
    frame = pd.DataFrame([row[:2] for row in rows], columns=["what", "value"])
    frame.attrs |= {
        "title": "What to do about it, and where it shows",
        "labels": _CARD,
        "links": {"value": [link for *_, link in rows]},
    }
    return frame


_CARD = {"value": "what to do"}


def to_hand_on(run: Run, diagnosis: Diagnosis, finding: Finding) -> tuple[Code, Code]:
    """The hypothesis of the round that acts on a finding, and a bug report with everything that somebody elsewhere needs."""
    title, text, change = hypothesis(finding, diagnosis)
    report = bug_report(run, diagnosis, finding, version=__version__)
    return (
        Code(title="Hypothesis of the next round", text=f"{title}\n{text}\nChange: {change}\n", folded=True),
        Code(title="Bug report, with everything that somebody elsewhere needs", text=report, folded=True),
    )
