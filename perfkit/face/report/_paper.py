"""Paper: the fault game as sheets to print: a round a page, today's run beside last week's; solutions apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from perfkit.core.units import significant
from perfkit.face.report._page import html_page
from perfkit.face.report._parts import Part, table_part
from perfkit.project.experiments.export import Section
from perfkit.teach.paper import KINDS, NUM_RANKS, NUM_STEPS, PaperRound, Record, paper_round

TASK = (
    "The run was fine last week. What is wrong, where, how many ms a step does it cost (or MB), and what would you do? 40 points "
    "for what, 30 for where, 20 for how much, 10 for the remedy. Ranks 0 to 3 are stage 0, 4 to 7 stage 1; 20 steps, times in ms."
)


def paper_game(class_seed: int, students: Iterable[str], rounds: Iterable[str], *, solutions: bool = False) -> str:
    """The sheets of some students and rounds ("G01", ...), or with `solutions` one table of what is true."""
    drawn = [(student, name, paper_round(class_seed, student, name)) for name in rounds for student in students]
    parts = [
        Part(Section(title="Fault game: solutions" if solutions else "Fault game", level=1, text=() if solutions else (TASK,)))
    ]
    if solutions:
        parts.append(
            table_part("What is true", ("student", "round", "what", "ranks", "cost", "what to do"), map(_truth, drawn), level=2)
        )
    for student, name, found in () if solutions else drawn:
        parts += _sheet(f"{student}, round {name}", found)
    return html_page(tuple(parts))


def _truth(drawn: tuple[str, str, PaperRound]) -> tuple[str, ...]:
    student, name, found = drawn
    ranks = ", ".join(map(str, found.ranks)) or "-"
    return student, name, found.kind, ranks, f"{significant(float(found.cost))} {found.unit}", found.action


def _sheet(title: str, found: PaperRound) -> Iterator[Part]:
    runs = {"today": found.today, "last week": found.last_week}
    answer = (
        f"What (one of {', '.join(KINDS)}): ________  Ranks: ________  Cost: ________  What to do: ________________________________"
    )
    yield Part(Section(title=title, text=(answer,)))
    header = ["rank", *(f"{part}, {when}" for part in ("computing", "free", "longest free", "transit", "wait") for when in runs)]
    yield table_part("By rank, mean of the steps", header, (_rank(rank, runs.values()) for rank in range(NUM_RANKS)))
    rows = ((step + 1, *(int(run.step[step]) for run in runs.values()), int(found.today.data[step])) for step in range(NUM_STEPS))
    yield table_part("By step", ("step", *runs, "data, today"), rows)
    counts = ((name, *(_count(name, run) for run in runs.values())) for name in COUNTS)
    yield table_part("Counts", ("of a step, or at the peak", *runs), counts)


COUNTS = {
    "cast kernels": "casts",
    "messages": "messages",
    "transit that is hidden, ms": "hidden",
    "peak without fragments, MB": "peak_mb",
    "peak with fragments, MB": "peak_with_fragments_mb",
}


def _count(name: str, run: Record) -> int:
    return int(getattr(run, COUNTS[name]))


def _rank(rank: int, runs: Iterable[Record]) -> list[str | int]:
    both = list(runs)
    means = [[significant(getattr(run, part)[rank].mean()) for run in both] for part in ("computing", "free", "transit", "wait")]
    longest = [str(run.free[rank].max()) for run in both]
    return [rank, *means[0], *means[1], *longest, *means[2], *means[3]]
