"""Sides: what the two things to compare are, by content: runs, plans, graph files, series of losses."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from perfkit.core.errors import InputError
from perfkit.core.run import Run
from perfkit.core.spec.plan import Plan
from perfkit.explain.alignment import TABLES, LossSeries, is_loss_table, read_table, series_of_run
from perfkit.explain.graph import GraphAnalysis, GraphReport, read_graph
from perfkit.predict.reading import read_config
from perfkit.record.format import Progress
from perfkit.record.load import load

Side = Run | Plan | GraphReport | LossSeries
Kind = Literal["runs", "plans", "run_plan", "graphs", "losses"]

CONFIG_SUFFIXES = frozenset({".yaml", ".yml", ".toml", ".sh", ".args", ".conf", ".py"})
STANDARD_INPUT = "-"


def open_side(given: Any, progress: Progress | None = None) -> Side:
    """What a path holds; a thing that was read already is itself.

    Raises InputError with everything that was tried if nothing can read it.
    """
    if isinstance(given, GraphAnalysis):
        return GraphReport(path=given.file.name, files={given.file.name: given}, unread={})
    if isinstance(given, Run | Plan | GraphReport | LossSeries):
        return given
    if not isinstance(given, str | Path):
        raise InputError("compare", [f"{type(given).__name__} cannot be compared; give a path, a run, a plan, a graph or losses"])
    place = Path(given).expanduser()
    if str(given) == STANDARD_INPUT or place.suffix.lower() in CONFIG_SUFFIXES:
        return read_config(given)
    if place.suffix.lower() == ".ir" or _holds_graphs(place):
        return read_graph(place, progress=progress)
    if is_loss_table(place):
        return read_table(place)
    try:
        return load(place, progress=progress)
    except InputError as error:
        if not place.is_file():
            raise
        try:
            return read_config(place)
        except InputError as other:
            raise InputError(str(given), [*error.problems, *other.problems]) from error


def open_losses(given: Any, progress: Progress | None = None) -> LossSeries:
    """The losses of a training log or table. Raises NotMeasuredError for a log without losses, InputError for anything else."""
    try:
        side = open_side(given, progress)
    except InputError:
        place = Path(given).expanduser() if isinstance(given, str | Path) else None
        if place is None or place.suffix.lower() not in TABLES or not place.is_file():
            raise
        return read_table(place)  # says why it is no table of losses
    if isinstance(side, Run):
        return series_of_run(side)
    if isinstance(side, LossSeries):
        return side
    raise InputError(str(given), ["is no training log and no table of losses"])


def kind_of(a: Side, b: Side) -> Kind:
    """What kind of comparison two sides ask for; raises InputError if they do not go together."""
    if isinstance(a, Plan) and isinstance(b, Plan):
        return "plans"
    if isinstance(a, GraphReport) and isinstance(b, GraphReport):
        return "graphs"
    if isinstance(a, Run | Plan) and isinstance(b, Run | Plan) and (isinstance(a, Plan) or isinstance(b, Plan)):
        return "run_plan"
    if _has_losses(a) and _has_losses(b) and (_only_log(a) or _only_log(b)):
        return "losses"
    if isinstance(a, Run) and isinstance(b, Run):
        return "runs"
    raise InputError(
        "compare",
        [
            f"a is {described(a)} and b is {described(b)}; compare two runs, two plans, a run with its plan, two graph dumps, "
            "or two series of losses"
        ],
    )


def described(side: Side) -> str:
    """What a side is, in words."""
    if isinstance(side, Run):
        return f"a {side.kind} run ({side.format})"
    return {Plan: "a plan", GraphReport: "a graph dump", LossSeries: "a series of losses"}[type(side)]


def name_of(side: Side, given: Any) -> str:
    """What messages call a side: the path as it was given, or its own name."""
    if isinstance(given, str | Path):
        return str(given)
    if isinstance(side, Plan):
        return side.document.name if side.document is not None else side.model.name or "plan"
    return side.path if isinstance(side, GraphReport) else side.name


def short_name(side: Side, place: str) -> str:
    """What a page calls a side that lies at `place`; of files called alike in every round the folder, too."""
    path = Path(place)
    return name_of(side, f"{path.parent.name}/{path.name}" if path.stem in ("config", "as_run") else path.name)


def both_have_kernels(a: Side, b: Side) -> bool:
    """Whether two sides are runs whose operators can be matched."""
    return all(isinstance(side, Run) and side.has("kernels") for side in (a, b))


def _holds_graphs(place: Path) -> bool:
    return place.is_dir() and (any(place.glob("*.ir")) or any(place.glob("*/*.ir")))


def _has_losses(side: Side) -> bool:
    return isinstance(side, LossSeries) or (isinstance(side, Run) and bool(side.frame("log")["loss"].notna().any()))


def _only_log(side: Side) -> bool:
    return isinstance(side, LossSeries) or (isinstance(side, Run) and not side.has("step_parts"))
