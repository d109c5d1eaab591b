"""Play: the fault game as one student plays it: looks that cost minutes, the answer that closes a round, and how it was judged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from perfkit.core.errors import InputError
from perfkit.core.texts import Said, joined, say
from perfkit.core.units import format_entry
from perfkit.teach import game, rounds
from perfkit.teach._draw import student_name
from perfkit.teach.report import by_team
from perfkit.teach.score import Guess, score
from perfkit.teach.session import Session, check_open, opened, spent_s
from perfkit.teach.views import look

BLOCK = "Fault game"


@dataclass(frozen=True, kw_only=True, slots=True)
class Play:
    """The round that a student is in at a level, with its runs."""

    round: rounds.Round
    case: game.Case

    def told(self) -> tuple[str, str]:
        """The situation with the minutes left, and where ranks are."""
        level = game.pack()["levels"][self.round.level]
        asked = say(
            "{level}, round {number}: the run was fine last week. {left} of {budget} min are left. "
            "What is wrong, where, how many ms a step does it cost, and what to do?",
            level=level["title"],
            number=str(self.round.number),
            left=str(self.round.left_min),
            budget=str(level["budget_min"]),
        )
        return asked, "Ranks 0 to 3 are stage 0, ranks 4 to 7 stage 1. Last week's run is the same job without faults."

    def looks(self) -> dict[str, pd.DataFrame]:
        """The views that were opened, today beside last week, by their titles; times in ns."""
        views = game.pack()["views"]
        return {
            say("{view}: today and last week", view=views[name]["title"]): look(name, self.case.today, self.case.last_week)
            for name in self.round.looked
        }


def play(here: Session, level: str) -> Play:
    """The round of a level that is open, simulated."""
    now = rounds.current(here.store, here.class_seed, here.student, level)
    opened(here.student, game.name_of(now.level, now.number))
    return Play(round=now, case=rounds.the_case(here.class_seed, here.student, now))


def take_look(here: Session, level: str, view: str) -> str:
    """Open one more view of the run, for the minutes that it costs, and say what is left."""
    check_open(here.store, BLOCK)
    now = rounds.current(here.store, here.class_seed, here.student, level)
    left = rounds.look_at(here.store, here.class_seed, here.student, now, view)
    return say("{view} is open below; {left} min are left.", view=game.pack()["views"][view]["title"], left=str(left))


def submit(here: Session, level: str, guesses: Sequence[Guess]) -> str:
    """Answer the round, which closes it, and say what it was worth; the next one is open then."""
    check_open(here.store, BLOCK)
    now = rounds.current(here.store, here.class_seed, here.student, level)
    seconds = spent_s(here.student, game.name_of(now.level, now.number))
    points = rounds.answer(here.store, here.class_seed, here.student, now, guesses, seconds=seconds)
    told = "{points} of 100 points. What was true stands below; the next round is open."
    return say(told, points=format_entry(points))


def guess(number: int, kind: str, place: str, amount: str, action: str) -> Guess:
    """What is said of fault `number`, as it is typed; raises InputError for an amount that is no number of ms a step."""
    text = amount.strip().lower().removesuffix("ms").replace(",", "")
    try:
        amount_ms = float(text) if text else 0.0
    except ValueError:
        amount_ms = math.nan
    if not math.isfinite(amount_ms):
        raise InputError(f"fault {number}", [f"{amount[:40]!r} is no number of ms a step; type for example 55"])
    return Guess(kind, place, amount_ms, action)


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """A round that was answered, and what was true in it."""

    round: rounds.Round
    case: game.Case

    def told(self) -> tuple[Said, Said]:
        """The points, and what `perfkit diagnose` makes of the same run."""
        said, points = game.findings(self.case.today), format_entry(self.round.points or 0)
        healthy = "nothing: the run looks healthy"
        return (
            say("Round {number}: {points} of 100 points.", number=str(self.round.number), points=points),
            say("perfkit diagnose said: {what}.", what=joined(said, by="; ") if said else healthy),
        )

    def to_frame(self) -> pd.DataFrame:
        """One row a fault that is there or was named: ranks, ms a step, what to do, points, why."""
        _, parts = score(self.round.guesses, self.case.truths)
        true = {truth.kind: truth for truth in self.case.truths}
        rows = []
        for part in parts:
            truth = true.get(part.kind)
            where = ", ".join(map(str, sorted(truth.ranks))) if truth and truth.ranks else "everywhere" if truth else ""
            cost = None if truth is None else round(truth.cost_ms, 1)
            row = {"fault": game.pack()["kinds"][part.kind]["title"], "ranks": where, "ms a step": cost}
            rows.append({**row, "what to do": truth.action if truth else "", "points": part.points, "why": part.text})
        frame = pd.DataFrame(rows)
        frame.attrs["title"] = say("Round {number}: what was true", number=str(self.round.number))
        return frame


def judged(here: Session, level: str) -> Judged | None:
    """How the last answer at a level was judged; None before the first one."""
    now = rounds.current(here.store, here.class_seed, here.student, level)
    if now.number == 1:
        return None
    before = rounds.current(here.store, here.class_seed, here.student, level, now.number - 1)
    return Judged(round=before, case=rounds.the_case(here.class_seed, here.student, before))


def join(here: Session, team: str) -> str:
    """Play for a team, with an empty name for oneself, and say so."""
    name = student_name(team) if team.strip() else ""
    here.store.join(here.student, name)
    return say("You play for {team}.", team=name) if name else "You play for yourself."


def team_of(here: Session) -> str:
    """How the student's team stands; empty without a team."""
    teams = here.store.teams()
    mine = teams.get(here.student)
    row = next((row for row in by_team(here.store.rows(here.class_seed), teams) if row["team"] == mine), None) if mine else None
    if row is None:
        return ""
    told = "Team {team}, {members} members: {points} points in all."
    return say(told, team=row["team"], members=str(row["members"]), points=format_entry(row["points"]))
