"""What Slurm is asked for, as the variables that it sets: nodes, tasks and devices, out of `#SBATCH` lines and launch lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

DIRECTIVE = re.compile(r"^#SBATCH[ \t]+([^#\n]*)", re.MULTILINE)
NODES, TASKS, DEVICES = "SLURM_NNODES", "SLURM_NTASKS_PER_NODE", "SLURM_GPUS_ON_NODE"
OPTIONS = {
    "-N": NODES,
    "--nodes": NODES,
    "--ntasks-per-node": TASKS,
    "--gpus-per-node": DEVICES,
    "--gres": DEVICES,
}
_LAST_NUMBER = re.compile(r"(?:[A-Za-z]\w*:)*(\d{1,6})")


def directives(text: str) -> list[str]:
    """The words of a script's `#SBATCH` lines."""
    return [word for found in DIRECTIVE.finditer(text) for word in found[1].split()]


def asked(words: Iterable[str]) -> dict[str, str]:
    """The variables that Slurm sets for these options; what is no number, such as a range of nodes, is not known."""
    found: dict[str, str] = {}
    waiting = ""
    for word in words:
        name, equals, value = word.partition("=")
        if waiting and not word.startswith("-"):
            name, value = waiting, word
        waiting = name if not equals and name == word else ""
        number = _LAST_NUMBER.fullmatch(value)
        if name in OPTIONS and number:
            found[OPTIONS[name]] = number[1]
    if NODES in found:
        found["SLURM_JOB_NUM_NODES"] = found[NODES]
    if DEVICES in found:
        found["SLURM_GPUS_PER_NODE"] = found[DEVICES]
    return found


def world_size(variables: Mapping[str, str]) -> str | None:
    """Processes of the job: one a task where a node has several, else one a device of it; None where that is not known."""
    nodes, tasks, devices = (variables.get(name, "") for name in (NODES, TASKS, DEVICES))
    each = tasks if tasks.isdigit() and int(tasks) > 1 else devices
    return str(int(nodes or 1) * int(each)) if each.isdigit() and (nodes or "1").isdigit() else None
