"""Strategy entries: the controls that say what a search of strategies may try, by the arguments of `search_plans`.

@widgets.step(base=open_plan, **strategy_entries())
def which_strategies_fit(base, *, device, limit_gib, sp, mbs, vpp, zero, **sizes): ...
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perfkit.face.widgets.entries import Choice, Entry, Number, Slider
from perfkit.face.widgets.plan_entries import SHARING, limit_gib, limits_gib, plan_entries
from perfkit.predict.plans.search.strategy_space import usual_chunks, usual_micro_batches


def strategy_entries() -> dict[str, Entry]:
    """Device, number of devices, memory limit, global batch and largest tensor parallel of a plan, and the sizes to try."""
    return {
        **plan_entries("device"),
        "devices": Number(lambda base: base.num_devices, low=1, high=1_000_000, step=1, label="Devices"),
        "limit_gib": Slider(
            values=limits_gib, default=limit_gib, label="Memory limit", unit="GiB", key="context.max_device_memory"
        ),
        **plan_entries("global_batch_size"),
        "largest_tensor": Slider(
            values=[1, 2, 4, 8, 16, 32, 64],
            default=lambda base: base.hardware.devices_per_node if base.hardware else 8,
            label="Largest tensor parallel",
            help="at most the devices of a node, unless you know better",
            key="parallel_config.model_parallel",
        ),
        # what takes two places stands after what takes one: the lines are full
        "sp": Choice("either", "on", "off", label="Sequence parallel", key="parallel_config.use_seq_parallel"),
        "mbs": _several(lambda base: usual_micro_batches(base.workload.micro_batch_size), "Micro batch"),
        "vpp": _several(lambda base: usual_chunks(base.model.num_layers), "Chunks a stage"),
        "zero": Choice(
            *SHARING,
            default=(0, 1, 2, 3),
            multiple=True,
            label="Shared by the optimizer's group",
            key="parallel.enable_parallel_optimizer",
        ),
    }


def _several(values: Callable[[Any], Any], label: str) -> Choice:
    return Choice(values, default=values, multiple=True, buttons=True, label=label)
