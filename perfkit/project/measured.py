"""Measured: the speed that was reached with one configuration, by a round of the project or by those who published a model.

What was measured belongs to what was run: a configuration that nobody ran has no speed, whatever else the project measured.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import pandas as pd

from perfkit.core import catalog
from perfkit.core.errors import PerfkitError
from perfkit.core.figure import Figure, figure
from perfkit.core.looks import folded
from perfkit.core.robust import is_real_change
from perfkit.core.roots import checked
from perfkit.core.texts import say
from perfkit.core.units import format_change
from perfkit.explain.compare import Comparison
from perfkit.explain.compare.told import comparison_told
from perfkit.predict.cost.utilization import published_cases
from perfkit.project import project_here
from perfkit.project.experiments import ExperimentLog

METRIC = "tokens_per_s_per_device"
UNKNOWN = "no round of the project ran this configuration"


def measured_speed(config: str) -> Figure:
    """Tokens/s of a device with a configuration, given by its path, or of a published model by its name.

    Of a file it is that of the last round of the page's project which ran a file of the same content; of a model the fastest that
    is published and can be true. Absent where there is none.
    """
    value, source = _published(config) if config in catalog.models() else _of_rounds(config)
    return figure("speed", value, "tokens/s/device", "reported", source)


def speed_told(config: str, speed: float, *, as_configured: bool) -> str:
    """Where a speed comes from, "" for one that somebody typed; and that it is another model's where sizes are changed."""
    known = measured_speed(config)
    if speed != known.value:
        return ""
    return known.source if as_configured else say("{source} The sizes above are others.", source=known.source)


def compared_told(found: Comparison, before: str, after: str) -> tuple[str | pd.DataFrame, ...]:
    """A comparison of what lies at two paths in sentences: where rounds ran both configurations, what they measured comes first.

    Their speeds and the change are a table behind the sentences.
    """
    if found.kind != "plans":
        return comparison_told(found)
    earlier, later = _last_measured(before), _last_measured(after)
    if earlier is None or later is None or earlier == later:
        return comparison_told(found)
    (first, old), (second, new) = earlier, later
    predicted = found.extra["figures"][METRIC]
    changes = new["value"] / old["value"] - 1, predicted["b"] / predicted["a"] - 1
    is_real = is_real_change(
        old["value"],
        new["value"],
        num_samples=min(old["n"], new["n"]),
        median_abs_devs=(old["median_abs_dev"], new["median_abs_dev"]),
    )
    helped = "No measurable change" if not is_real else "It helped" if new["value"] > old["value"] else "It did not help"
    form = "{helped}: {old_tokens_per_s_per_device} before, {new_tokens_per_s_per_device} after ({change}); predicted: {predicted}."
    if most := _most_of_the_change(found):
        form = (
            "{helped}: {old_tokens_per_s_per_device} before, {new_tokens_per_s_per_device} after ({change}); "
            "predicted: {predicted}, mostly {part}."
        )
    measured = say(
        form,
        helped=say(helped),
        old_tokens_per_s_per_device=old["value"],
        new_tokens_per_s_per_device=new["value"],
        change=format_change(changes[0]),
        predicted=format_change(changes[1]),
        part=most,
    )
    of_rounds = say("The speeds are those of rounds {first} and {second}.", first=str(first), second=str(second))
    rows = [(first, old["value"], None, None), (second, new["value"], *changes)]
    table = pd.DataFrame(rows, columns=["round", METRIC, "change_ratio", "predicted_ratio"])
    table.attrs["title"] = say("What the rounds measured")
    return *comparison_told(found, measured=(measured, of_rounds)), folded(table)


def _most_of_the_change(found: Comparison) -> str:
    """The part that makes more than half of the predicted change, "" where none does."""
    change = float((found.total_b or 0) - (found.total_a or 0))
    return next((part.path for part in found.parts if change and float(part.delta) / change > 0.5), "")


def _published(model: str) -> tuple[float | None, str]:
    cases = published_cases()
    true = cases[(cases["model"] == model) & cases["judgement"].isin(["plausible", "suspicious"])]
    if true.empty:
        return None, UNKNOWN
    fastest = true.nlargest(1, METRIC).iloc[0]
    return float(fastest[METRIC]), say("The speed is a published one: {source}.", source=str(fastest["source"]))


def _of_rounds(config: str) -> tuple[float | None, str]:
    found = _last_measured(config)
    if found is None:
        return None, UNKNOWN
    number, one = found
    return one["value"], say("The speed is that of round {number}.", number=str(number))


def _last_measured(config: str) -> tuple[int, Mapping[str, Any]] | None:
    """The last round of the page's project that ran a file of the same content, and the speed that it measured."""
    project = project_here()
    if project is None or not config:
        return None
    try:
        content = hashlib.sha256(checked(config).read_bytes()).hexdigest()
        rounds = ExperimentLog(project.folder, read_only=True).show("json")["rounds"]
    except (PerfkitError, OSError):  # the pages of the log and of the configuration say what is wrong with it
        return None
    for row in reversed(rounds):
        runs = [run for run in row["runs"] if run["kind"] != "simulated"]
        speeds = [one for run in runs for one in run["measurements"] if one["metric"] == METRIC]
        if speeds and speeds[-1]["value"] and content in _configs_that_ran(row):
            return row["number"], speeds[-1]
    return None


def _configs_that_ran(row: Mapping[str, Any]) -> list[str]:
    """The contents of the configurations that a round's speed is of: those that it ran with, else those that it planned."""
    by_role = {role: [one["sha256"] for one in row["configs"] if one["role"] == role] for role in ("as_run", "plan")}
    return by_role["as_run"] or by_role["plan"]
