"""Report: what an instructor reads of a class: progress by exercise and student, frequent mistakes, who is stuck, and timing.

All figures follow from the rows of `attempt`. Solved is right and not shown before; mastery is right without a hint, over those who
have tried.
"""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from perfkit.core.spreadsheet import safe_cell
from perfkit.teach._catalogue import exercises
from perfkit.teach._store import RESET, Standing, standing

Row = Mapping[str, Any]
STUCK_TRIES = 3
STUCK_S = 360.0
GOAL_SHARE = 0.8
GENERIC = {
    "unit": "off by 1000 or 1024",
    "percent": "off by 100",
    "reciprocal": "the reciprocal",
    "sign": "the wrong sign",
    "too_high": "too high",
    "too_low": "too low",
    "other": "another one",
}
COLUMNS = ("student", "exercise", "at_ns", "answer", "correct", "matched_wrong", "hints", "revealed", "seconds", "points")


def standings(rows: Iterable[Row]) -> dict[str, dict[str, Standing]]:
    """Where everybody is: student -> exercise -> standing, for what has been begun."""
    kept: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row["exercise"] in exercises():
            kept[row["student"]][row["exercise"]].append(row)
    return {student: {name: standing(mine) for name, mine in begun.items()} for student, begun in sorted(kept.items())}


def state_of(found: Standing | None) -> str:
    """A cell of the heat map."""
    if found is None or not (found.tries or found.hints or found.solved or found.revealed):
        return "untouched"
    if found.revealed:
        return "revealed"
    if found.solved:
        return "right with hint" if found.hints else "right"
    return "trying"


def by_exercise(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """One row an exercise that anybody has begun: tried, solved, mastered, median seconds to the right answer."""
    everybody = standings(rows)
    table = []
    for name, exercise in exercises().items():
        found = [mine[name] for mine in everybody.values() if name in mine and state_of(mine[name]) != "untouched"]
        if not found:
            continue
        solved = [one for one in found if one.solved and not one.revealed]
        mastered = sum(not one.hints for one in solved)
        seconds = median([one.seconds for one in solved]) if solved else None
        row = {"exercise": name, "title": exercise.title, "tried": len(found), "solved": len(solved)}
        table.append({**row, "solved_ratio": len(solved) / len(found), "mastery_ratio": mastered / len(found), "median_s": seconds})
    return table


def by_student(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """One row a student: solved, with hints, shown, tries, points, seconds; most points first."""
    table = []
    for student, mine in standings(rows).items():
        found = list(mine.values())
        solved = [one for one in found if one.solved and not one.revealed]
        row = {"student": student, "solved": len(solved), "with hint": sum(one.hints > 0 for one in solved)}
        row |= {"shown": sum(one.revealed for one in found), "wrong tries": sum(one.tries for one in found)}
        table.append({**row, "points": sum(one.points for one in found), "seconds": round(sum(one.seconds for one in found), 1)})
    return sorted(table, key=lambda row: (-row["points"], row["student"]))


def by_team(rows: Sequence[Row], teams: Mapping[str, str]) -> list[dict[str, Any]]:
    """One row a team: members, exercises solved, points of exercises, of the game and the capstone, and together; most first."""
    solved: dict[str, int] = defaultdict(int)
    points: dict[str, float] = defaultdict(float)
    played: dict[str, float] = defaultdict(float)
    for student, mine in standings(rows).items():
        solved[teams.get(student, "")] += sum(one.solved and not one.revealed for one in mine.values())
        points[teams.get(student, "")] += sum(one.points for one in mine.values())
    rounds = {
        (row["student"], row["exercise"]): row["points"] for row in rows if row["exercise"] not in exercises() and row["answer"]
    }
    for (student, _), worth in rounds.items():
        played[teams.get(student, "")] += worth
    table = []
    for team in sorted(set(teams.values())):
        row = {"team": team, "members": sum(name == team for name in teams.values()), "solved": solved[team]}
        row |= {"exercises": round(points[team], 1), "game and capstone": round(played[team], 1)}
        table.append({**row, "points": round(points[team] + played[team], 1)})
    return sorted(table, key=lambda row: (-row["points"], row["team"]))


def mistakes(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """The most frequent wrong answers: by how many students, and what to tell them."""
    who: dict[tuple[str, str], set[str]] = defaultdict(set)
    tried: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        if row["exercise"] not in exercises() or not row["answer"]:
            continue
        tried[row["exercise"]].add(row["student"])
        if row["matched_wrong"] and row["matched_wrong"] != RESET:
            who[row["exercise"], row["matched_wrong"]].add(row["student"])
    table = [
        {
            "exercise": name,
            "mistake": exercises()[name].wrong.get(mistake, GENERIC.get(mistake, mistake)),
            "students": len(students),
            "of": len(tried[name]),
        }
        for (name, mistake), students in who.items()
    ]
    return sorted(table, key=lambda row: (-row["students"], row["exercise"], row["mistake"]))


def stuck(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Who has three wrong tries or six minutes on an exercise that is not solved, longest first."""
    table = [
        {
            "student": student,
            "exercise": name,
            "wrong tries": found.tries,
            "seconds": round(found.seconds, 1),
            "last answer": found.last,
        }
        for student, mine in standings(rows).items()
        for name, found in mine.items()
        if not (found.solved or found.revealed) and (found.tries >= STUCK_TRIES or found.seconds > STUCK_S)
    ]
    return sorted(table, key=lambda row: (-row["wrong tries"], -row["seconds"]))


def cells(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The heat map: a row a student and exercise, with its state and number of wrong tries."""
    return [
        {"student": student, "exercise": name, "state": state_of(mine.get(name)), "tries": mine[name].tries if name in mine else 0}
        for student, mine in standings(rows).items()
        for name in exercises()
    ]


def results_csv(rows: Iterable[Row], *, anonymous: bool = False) -> str:
    """All rows as CSV; `anonymous` has s01, s02, ... in the order of first answers in place of names."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in without_names(rows) if anonymous else rows:
        writer.writerow([safe_cell(row[column]) for column in COLUMNS])
    return text.getvalue()


def without_names(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """The rows with s01, s02, ... in the order of first answers in place of names."""
    known: dict[str, str] = {}
    return [{**row, "student": known.setdefault(row["student"], f"s{len(known) + 1:02}")} for row in rows]
