"""What Slurm is asked for, as the variables that it sets: nodes, tasks and devices, out of `#SBATCH` lines and launch lines.

The processes of `mpirun` are tasks, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

DIRECTIVE = re.compile(r"^#SBATCH[ \t]+([^#\n]*)", re.MULTILINE)
NODES, TASKS, DEVICES = "SLURM_NNODES", "SLURM_NTASKS_PER_NODE", "SLURM_GPUS_ON_NODE"
ALL_TASKS, ALL_DEVICES, DEVICES_A_TASK = "SLURM_NTASKS", "SLURM_GPUS", "SLURM_GPUS_PER_TASK"
OPTIONS = {
    "-N": NODES,
    "--nodes": NODES,
    "-n": ALL_TASKS,
    "--ntasks": ALL_TASKS,
    "--ntasks-per-node": TASKS,
    "--gpus-per-node": DEVICES,
    "--gres": DEVICES,
    "-G": ALL_DEVICES,
    "--gpus": ALL_DEVICES,
    "--gpus-per-task": DEVICES_A_TASK,
}
OF_MPI = dict.fromkeys(("-np", "--np", "-n"), ALL_TASKS)
MPI = ("mpirun", "mpiexec")
_SHORT = re.compile(r"^(-[NnG])(\d.*)$")
"""An option with its value in one word (`-N2`)."""
_LAST_NUMBER = re.compile(r"(?:[A-Za-z]\w*:)*(\d{1,6})")


def plain(word: str) -> str:
    """The name of a program, wherever it lies."""
    return word.rpartition("/")[2].removesuffix(".hydra")


def directives(text: str) -> list[str]:
    """The words of a script's `#SBATCH` lines."""
    return [word for found in DIRECTIVE.finditer(text) for word in found[1].split()]


def asked(words: Iterable[str]) -> dict[str, str]:
    """The variables that Slurm sets for these options, before which the program may stand that takes them.

    What is no number, such as a range of nodes, is not known.
    """
    found: dict[str, str] = {}
    waiting, options = "", OPTIONS
    for word in words:
        if plain(word) in MPI:
            options = OF_MPI
        name, equals, value = _SHORT.sub(r"\1=\2", word).partition("=")
        if waiting and not word.startswith("-"):
            name, value = waiting, word
        waiting = name if not equals and name == word else ""
        number = _LAST_NUMBER.fullmatch(value)
        if name in options and number:
            found[options[name]] = number[1]
    if NODES in found:
        found["SLURM_JOB_NUM_NODES"] = found[NODES]
    if DEVICES in found:
        found["SLURM_GPUS_PER_NODE"] = found[DEVICES]
    return found


def world_size(variables: Mapping[str, str]) -> str | None:
    """Processes of the job: one a task where there are more tasks than nodes, else one a device; None where that is not known."""
    count = {name: int(value) for name in set(OPTIONS.values()) if (value := variables.get(name, "")).isdecimal()}
    if (nodes := variables.get(NODES, "1")) != "1" and NODES not in count:
        return None
    tasks = max(int(nodes), count.get(ALL_TASKS, 0), int(nodes) * count.get(TASKS, 0))
    if tasks > int(nodes):
        return str(tasks)
    of_devices = (int(nodes) * count.get(DEVICES, 0), count.get(ALL_DEVICES, 0), tasks * count.get(DEVICES_A_TASK, 0))
    return str(max(of_devices)) if any(of_devices) else None
