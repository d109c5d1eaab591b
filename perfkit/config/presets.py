"""Presets: plans by name. A configuration by its path, or a published model on 16 devices, where no configuration is at hand."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from perfkit.config.dialects import read_config
from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.roots import checked, is_allowed
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.workload import Workload

CONFIG_SUFFIXES = frozenset({".yaml", ".yml", ".toml", ".sh", ".json"})


def read_plan(name: str) -> Plan:
    """The plan of a preset: the path of a configuration, or the name of a model of the catalogue.

    It is read once while it stays the same. Raises InputError with every problem of the configuration.
    """
    if name in catalog.models():
        return published_plan(name)
    place = checked(name)
    return _config_plan(str(place), place.stat().st_mtime_ns if place.exists() else 0)


def published_plan(name: str) -> Plan:
    """A model of the catalogue as it was trained, on 16 devices in two pipeline stages that share the optimizer's state."""
    record = catalog.records()[name]
    layout = ParallelPlan(
        data_parallel_size=8, pipeline_parallel_size=2 if record.spec.num_layers > 1 else 1, optimizer_shard_size=8
    )
    work = Workload(seq_length=record.seq_length, micro_batch_size=1, global_batch_size=256)
    return Plan(model=record.spec, workload=work, parallel=layout)


def config_beside(recording: str) -> str:
    """The configuration that lies beside a recording or log, or in its folder; "" if there is none, or several."""
    if not recording:
        return ""
    place = checked(recording)
    folder = place if place.is_dir() else place.parent
    if not is_allowed(folder) or not folder.is_dir():  # of a file that was named alone its folder is not open
        return ""
    found = sorted(file for file in folder.iterdir() if file.suffix in CONFIG_SUFFIXES)
    return str(found[0]) if len(found) == 1 and _is_plan(found[0]) else ""


def _is_plan(file: Path) -> bool:
    try:
        read_plan(str(file))
    except InputError:
        return False
    return True


@lru_cache(maxsize=16)
def _config_plan(path: str, _modified_ns: int) -> Plan:
    # A slider asks several times a second; reading a configuration takes 40 ms.
    return read_config(path)
