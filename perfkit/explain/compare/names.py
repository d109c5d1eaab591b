"""Names of two runs: which kernels and which operators of the host were added, removed, or are called more or less often.

Nothing is matched but the name, as in Holistic Trace Analysis (TraceDiff in hta/trace_diff.py); `perfkit.explain.compare.operators`
matches what computes the same under other names. Amounts are means of one step and rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from perfkit.core.answer import Answer
from perfkit.core.errors import InputError
from perfkit.core.questions import ASKED
from perfkit.core.run import Run
from perfkit.record.events.host_steps import STEP_MARK, host_steps

COLUMNS = ("where", "name", "change", "count_a", "count_b", "total_a_ns", "total_b_ns")
CHANGES = ("added", "removed", "more", "fewer", "same")
MAX_RANKS = 4
_HOST_KINDS = ("operator", "call", "mark")


def compare_names(
    a: Run,
    b: Run,
    *,
    ranks: tuple[Sequence[int], Sequence[int]] | None = None,
    steps: tuple[Sequence[int], Sequence[int]] | None = None,
) -> Answer:
    """One row a name on the device or the host of two runs; b is the new side.

    Columns: `where` (device or host), `name`, `change` (added: b alone has it, removed, more, fewer or same number of calls),
    `count_a`, `count_b` (calls of one step and rank), `total_a_ns`, `total_b_ns` (their summed durations). What changed the most
    time stands first. `ranks` and `steps` choose those of a and of b; by default up to 4 ranks of each and all steps. What happened
    outside of all steps is left out, and so are the marks of steps. Raises InputError if a side has neither kernels nor a host.
    """
    sides = []
    for at, run in enumerate((a, b)):
        side = _of(
            run, list(run.ranks)[:MAX_RANKS] if ranks is None else list(ranks[at]), None if steps is None else list(steps[at])
        )
        if side.empty:
            raise InputError(run.name, ["has no kernels and no operators of the host in these steps"])
        sides.append(side)
    table = sides[0].add_suffix("_a").join(sides[1].add_suffix("_b"), how="outer").fillna(0.0).reset_index()
    table = table.rename(columns={"total_ns_a": "total_a_ns", "total_ns_b": "total_b_ns"})
    less, more = table["count_b"] < table["count_a"], table["count_b"] > table["count_a"]
    table["change"] = "same"
    table.loc[more, "change"] = "more"
    table.loc[less, "change"] = "fewer"
    table.loc[table["count_a"] == 0, "change"] = "added"
    table.loc[table["count_b"] == 0, "change"] = "removed"
    moved = (table["total_b_ns"] - table["total_a_ns"]).abs()
    order = table.assign(moved=moved).sort_values(["moved", "where", "name"], ascending=[False, True, True], ignore_index=True)
    answer = Answer(order.loc[:, list(COLUMNS)])
    answer.attrs[ASKED] = "compare_names"
    return answer


def names_document(table: pd.DataFrame) -> list[dict[str, Any]]:
    """What changed as JSON has it: the rows of `compare_names` whose number of calls is not the same."""
    changed = table[table["change"] != "same"]
    return [{str(name): value for name, value in row.items()} for row in changed.to_dict("records")]


def _of(run: Run, ranks: list[int], steps: list[int] | None) -> pd.DataFrame:
    """By `where` and `name` the calls and their time of one step and rank."""
    columns = ["rank", "step", "name", "duration_ns"]
    device = run.frame("kernels", ranks=ranks, columns=columns).assign(where="device")
    host = [_host(run, rank) for rank in ranks]
    rows = pd.concat([frame.astype({"name": "object"}) for frame in (device, *host) if len(frame)] or [device], ignore_index=True)
    rows = rows[~rows["name"].isin([name for name in rows["name"].unique() if STEP_MARK.match(str(name))])]
    rows = rows[rows["step"].notna()] if steps is None else rows[rows["step"].isin(steps)]
    visits = rows[["where", "rank", "step"]].drop_duplicates().groupby("where").size()
    groups = rows.groupby(["where", "name"])["duration_ns"]
    found = pd.DataFrame({"count": groups.size(), "total_ns": groups.sum()}).astype("float64")
    return found.div(visits.reindex(found.index.get_level_values("where")).to_numpy(), axis=0) if len(found) else found


def _host(run: Run, rank: int) -> pd.DataFrame:
    rows = run.frame("host", ranks=[rank], columns=["rank", "name", "kind", "start_ns", "duration_ns"])
    rows = rows.assign(step=host_steps(rows), where="host")
    return rows.loc[rows["kind"].isin(_HOST_KINDS).to_numpy(dtype=bool), ["rank", "step", "name", "duration_ns", "where"]]
