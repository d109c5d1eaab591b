"""Writing perfkit TOML: every field of a plan, or the catalogue's name where a part is its entry; what is trained stands apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass, replace
from typing import Any

from perfkit.config.dialects._toml_splice import key_text, value_text
from perfkit.config.dialects.dialect import Changes
from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.spec.hardware import HardwareSpec
from perfkit.core.spec.memory_limit import MemoryLimit
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.optimizer import OptimizerSpec
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.core.spec.software import SoftwareSpec
from perfkit.core.spec.trained import TrainedLayers
from perfkit.core.spec.workload import Workload

PARTS: dict[str, Any] = {
    "model": ModelSpec,
    "workload": Workload,
    "parallel": ParallelPlan,
    "recompute": RecomputePlan,
    "optimizer": OptimizerSpec,
    "hardware": HardwareSpec,
    "memory_limit": MemoryLimit,
    "software": SoftwareSpec,
}
TRAINED = ("adapters", "trained_layers")
"""Fields of a model that no entry of the catalogue has."""
ORIGINS = ("sources", "source")
"""Fields that say where values come from, which the file itself is."""


def settings(plan: Plan) -> dict[tuple[str, ...], Any]:
    """Every field by table and name; None for what has no value and must not stand in the file."""
    found: dict[tuple[str, ...], Any] = {}
    for name in PARTS:
        part = getattr(plan, name)
        if part is None:
            found[(name,)] = None
            continue
        named = _catalogued(part)
        for field in fields(part):
            if field.name not in ORIGINS:
                value = _plain(getattr(part, field.name))
                found[name, field.name] = value if not named or field.name in ("name", *TRAINED) else None
    return found


def new(settings: Changes) -> str:
    """A new file: one table a part, without the fields that have their default."""
    tables: dict[str, list[str]] = {}
    defaults = _defaults()
    for path, value in settings.items():
        if value is None or len(path) < 2 or (path in defaults and value == defaults[path]):
            continue
        tables.setdefault(path[0], []).append(f"{key_text(path[1])} = {value_text(value)}\n")
    return "\n".join(f"[{name}]\n{''.join(lines)}" for name, lines in tables.items())


def _catalogued(part: Any) -> bool:
    """Whether a model or device is exactly the catalogue's entry of its name."""
    name = getattr(part, "name", "")
    try:
        if isinstance(part, HardwareSpec):
            return part == catalog.hardware_named(name)
        if isinstance(part, ModelSpec):
            part = replace(part, adapters=None, trained_layers=None)
        return bool(name) and part == catalog.find_model(name)
    except InputError:
        return False


def _plain(value: Any) -> Any:
    if isinstance(value, TrainedLayers):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {key: item for key, item in asdict(value).items() if key != "name" and item != ""}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _defaults() -> dict[tuple[str, ...], Any]:
    found: dict[tuple[str, ...], Any] = {}
    for name, kind in PARTS.items():
        for field in fields(kind):
            value = field.default if field.default_factory is MISSING else field.default_factory()
            if value is not MISSING:
                found[name, field.name] = _plain(value)
    found |= {("optimizer", field.name): getattr(OptimizerSpec(), field.name) for field in fields(OptimizerSpec)}
    return found
