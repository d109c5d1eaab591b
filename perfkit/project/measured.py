"""Measured: the speed that was reached with one configuration, by a round of the project or by those who published a model.

What was measured belongs to what was run: a configuration that nobody ran has no speed, whatever else the project measured.
"""

from __future__ import annotations

import hashlib

from perfkit.core import catalog
from perfkit.core.errors import PerfkitError
from perfkit.core.figure import Figure, figure
from perfkit.core.roots import checked
from perfkit.core.texts import say
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


def _published(model: str) -> tuple[float | None, str]:
    cases = published_cases()
    true = cases[(cases["model"] == model) & cases["judgement"].isin(["plausible", "suspicious"])]
    if true.empty:
        return None, UNKNOWN
    fastest = true.nlargest(1, METRIC).iloc[0]
    return float(fastest[METRIC]), say("The speed is a published one: {source}.", source=str(fastest["source"]))


def _of_rounds(config: str) -> tuple[float | None, str]:
    project = project_here()
    if project is None or not config:
        return None, UNKNOWN
    try:
        content = hashlib.sha256(checked(config).read_bytes()).hexdigest()
        rounds = ExperimentLog(project.folder, read_only=True).show("json")["rounds"]
    except (PerfkitError, OSError):  # the pages of the log and of the configuration say what is wrong with it
        return None, UNKNOWN
    for row in reversed(rounds):
        runs = [run for run in row["runs"] if run["kind"] != "simulated"]
        speeds = [one["value"] for run in runs for one in run["measurements"] if one["metric"] == METRIC]
        if speeds and speeds[-1] and content in [one["sha256"] for one in row["configs"]]:
            return speeds[-1], say("The speed is that of round {number}.", number=str(row["number"]))
    return None, UNKNOWN
