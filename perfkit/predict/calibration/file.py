"""Calibrations: the efficiencies of devices, software stacks and networks, from files that a person can read and edit.

A file (`data/calibration/*.toml`) has the numbers that hold for all plans (`[common]`) and what differs by accelerator, by software
stack and by network, each with the origin, the number of measured points and the error that they leave. A prediction multiplies
nothing else: what a number means is stated in `perfkit.predict.cost.efficiency`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import tomli_w

from perfkit.core.errors import InputError
from perfkit.core.numbers import Number, where
from perfkit.core.plan_columns import Coded, Flags
from perfkit.core.resources import data_folder
from perfkit.predict.cost.efficiency import Efficiency
from perfkit.predict.cost.labels import Label

GROUPS = ("precision", "accelerator", "stack", "network", "setup")
NAMES = frozenset(item.name for item in fields(Efficiency))
OVERLAPPED = {
    "gradients_hidden": ("overlap_dp", "gradients_hidden", "gradients_overlapped"),
    "tensor_hidden": ("overlap_tp", "tensor_hidden", "tensor_overlapped"),
    "sends_hidden": ("overlap_pp", "sends_hidden", "sends_overlapped"),
    "experts_hidden": ("overlap_ep", "experts_hidden", "experts_overlapped"),
}
"""The share that computing hides: by which field of a plan it is stated, what is usual, and what holds where it is overlapped."""
INTERVAL = (0.85, 1.25)
"""Measured over predicted time, 10th and 90th percentile, where nothing comparable was measured."""

DOUBTS = ("experts", "device", "network")
SPREADS = ("source", "row")
OF_DEVICES, OF_NETWORKS = ("accelerator.", "setup."), "network."
TIMES = ("compute", "communication", "host")
"""Factors on the time of operators, of collectives and of the host."""

Values = Mapping[str, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
    """Efficiencies by group; `groups["accelerator"]["A100"]` overrides `common` on every device whose name starts so.

    A later group of `GROUPS` overrides an earlier one. Members of "setup" are a device's start and words that must all be the
    plan's program or precision: "H100/megatron/float8".
    `interval` is the 10th and 90th percentile of measured over predicted time of groups of rows that the fit had not seen; `doubt`
    are logarithms by which it is wider for plans with "experts", on a "device" for which no efficiency is stated, and on several
    nodes of a "network" whose own numbers are stated, as it is not what networks are elsewhere. `spread` are the deviations, in
    logarithms, of what the runs of one "source" have in common and of a "row" around that.
    """

    name: str
    common: Values = field(default_factory=dict)
    groups: Mapping[str, Mapping[str, Values]] = field(default_factory=dict)
    interval: tuple[float, float] = INTERVAL
    doubt: Values = field(default_factory=dict)
    spread: Values = field(default_factory=dict)
    origin: str = ""
    points: int = 0
    error: float = 0.0
    _resolved: dict[Label, tuple[dict[str, float], bool, bool]] = field(init=False, repr=False, compare=False, default_factory=dict)

    def efficiency(self, labels: Coded[Label]) -> Efficiency:
        """The efficiencies of every plan: numbers where all agree, arrays otherwise."""
        merged = [self._merged(label)[0] for label in labels.values]
        if len(merged) == 1:
            return Efficiency(**merged[0])
        chosen: dict[str, Any] = {}
        for name in NAMES:
            column = np.array([values[name] for values in merged], dtype=np.float64)
            chosen[name] = float(column[0]) if (column == column[0]).all() else column[labels.codes]
        return Efficiency(**chosen)

    def bounds(self, labels: Coded[Label], experts: Number, nodes: Number) -> tuple[Number, Number]:
        """Bounds of measured over predicted time that hold 80 % of the plans, an array each.

        `experts` says which plans have any, `nodes` which take more than one node.

        What is not known adds to the half width of `interval`, in logarithms, as independent errors do.
        """
        low, high = np.log(self.interval)
        doubtful = (experts, "experts"), (~self.knows(labels), "device"), (nodes & self.differs(labels), "network")
        doubts = sum(where(rows, self.doubt.get(kind, 0.0) ** 2, 0.0) for rows, kind in doubtful)
        half = np.sqrt(((high - low) / 2.0) ** 2 + doubts)
        return np.exp((low + high) / 2.0 - half), np.exp((low + high) / 2.0 + half)

    def knows(self, labels: Coded[Label]) -> Flags:
        """Whether efficiencies are stated for the device of every plan."""
        return labels.flags(lambda label: self._merged(label)[1])

    def differs(self, labels: Coded[Label]) -> Flags:
        """Whether the network of every plan has numbers of its own."""
        return labels.flags(lambda label: self._merged(label)[2])

    def _merged(self, label: Label) -> tuple[dict[str, float], bool, bool]:
        """The numbers for a label, and whether any is stated for its device and for its network; found once."""
        if label not in self._resolved:
            paths = [path for path, _ in self._meant(label)]
            of_device, of_network = (any(path.startswith(start) for path in paths) for start in (OF_DEVICES, OF_NETWORKS))
            self._resolved[label] = self._values(label), of_device, of_network
        return self._resolved[label]

    def _values(self, label: Label) -> dict[str, float]:
        values = {**_usual(), **self.common}
        for _, own in self._meant(label):
            values |= own
        for name, (stated, usual, overlapped) in OVERLAPPED.items():
            if (overlap := getattr(label, stated)) is not None:
                values[name] = max(values[usual], values[overlapped]) if overlap else 0.0
        return values

    def _meant(self, label: Label) -> Iterator[tuple[str, Values]]:
        """The numbers that differ from the common ones for a label, with their paths, the deciding ones last."""
        for group in GROUPS:
            for key, own in self.groups.get(group, {}).items():
                if _is_meant(group, key, label):
                    yield f"{group}.{key}", own

    def path(self, label: Label, name: str) -> str:
        """The path of the number of that name which counts for a label."""
        return next((f"{path}.{name}" for path, own in reversed(list(self._meant(label))) if name in own), f"common.{name}")

    def value(self, path: str) -> float:
        """The number at a path such as "accelerator.A100.matmul" or "common.memory"."""
        group, _, rest = path.partition(".")
        if group == "common":
            return float(self.common[rest] if rest in self.common else _usual()[rest])
        start, _, name = rest.rpartition(".")
        return float(self.groups.get(group, {}).get(start, {}).get(name, self.value(f"common.{name}")))

    def with_values(self, values: Mapping[str, float]) -> Calibration:
        """The same with other numbers at some paths."""
        common = dict(self.common)
        groups = {group: {start: dict(own) for start, own in members.items()} for group, members in self.groups.items()}
        for path, value in values.items():
            group, _, rest = path.partition(".")
            if group == "common":
                common[rest] = value
            else:
                start, _, name = rest.rpartition(".")
                groups.setdefault(group, {}).setdefault(start, {})[name] = value
        return replace(self, common=common, groups=groups)

    def slower(self, factor: float) -> Calibration:
        """The same with all operators, collectives and the host `factor` times slower."""
        times = {f"common.{name}": self.value(f"common.{name}") for name in TIMES}
        for group, members in self.groups.items():
            times |= {f"{group}.{key}.{name}": own[name] for key, own in members.items() for name in TIMES if name in own}
        return self.with_values({path: factor * value for path, value in times.items()})

    def write(self, path: str | Path) -> None:
        """Write it as TOML with 4 significant digits."""
        document: dict[str, Any] = {
            "name": self.name,
            "origin": self.origin,
            "points": self.points,
            "error": round(self.error, 4),
            "interval": [round(bound, 4) for bound in self.interval],
            "doubt": _rounded(self.doubt),
            "spread": _rounded(self.spread),
            "common": _rounded(self.common),
        }
        document |= {
            group: {start: _rounded(own) for start, own in members.items()} for group, members in self.groups.items() if members
        }
        Path(path).write_text(tomli_w.dumps(document), encoding="utf-8")


def _is_meant(group: str, key: str, label: Label) -> bool:
    if group != "setup":
        return str(getattr(label, group)).startswith(key)
    device, *words = key.split("/")
    return label.accelerator.startswith(device) and all(word in (label.stack, label.precision) for word in words)


def _usual() -> Values:
    """What holds where a calibration says nothing: the common numbers of the default."""
    return calibration("default").common


def bundled() -> tuple[str, ...]:
    """Names of the calibrations that come with perfkit."""
    return tuple(sorted(file.stem for file in (data_folder() / "calibration").glob("*.toml")))


@cache
def calibration(name: str = "default") -> Calibration:
    """A bundled calibration by name, or one in a file (a path that ends in .toml). Raises InputError that names what is wrong."""
    path = Path(name) if name.endswith(".toml") else data_folder() / "calibration" / f"{name}.toml"
    if not path.is_file():
        raise InputError("calibration", [f"{name!r} is neither a file nor one of {', '.join(bundled())}"])
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(str(path), [f"not TOML: {error}"]) from error
    return _checked(str(path), document)


def _checked(path: str, document: Mapping[str, Any]) -> Calibration:
    problems: list[str] = []
    common = _values(document.get("common", {}), "common", problems)
    groups = {
        group: MappingProxyType(
            {start: _values(own, f"{group}.{start}", problems) for start, own in document.get(group, {}).items()}
        )
        for group in GROUPS
    }
    interval = tuple(document.get("interval", INTERVAL))
    if len(interval) != 2 or not all(isinstance(bound, (int, float)) and bound > 0 for bound in interval):
        problems.append(f"interval = {list(interval)} must be two positive ratios")
    doubt, spread = _logarithms(document, "doubt", DOUBTS, problems), _logarithms(document, "spread", SPREADS, problems)
    if spread and (len(spread) < len(SPREADS) or not spread["row"]):
        problems.append(f"spread must have {' and '.join(SPREADS)}, the last above 0")
    if problems:
        raise InputError(path, problems)
    return Calibration(
        name=str(document.get("name", path)),
        common=common,
        groups=MappingProxyType(groups),
        interval=(float(interval[0]), float(interval[1])),
        doubt=MappingProxyType(doubt),
        spread=MappingProxyType(spread),
        origin=str(document.get("origin", "")),
        points=int(document.get("points", 0)),
        error=float(document.get("error", 0.0)),
    )


def _logarithms(document: Mapping[str, Any], where: str, names: Sequence[str], problems: list[str]) -> dict[str, float]:
    table = document.get(where, {})
    if not isinstance(table, Mapping):
        problems.append(f"{where} must be a table")
        return {}
    found: dict[str, float] = {}
    for name, value in table.items():
        if name not in names:
            problems.append(f"{where}.{name} is no {where}; known are {', '.join(names)}")
        elif isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 5:
            problems.append(f"{where}.{name} = {value!r} must be a logarithm from 0 to 5")
        else:
            found[name] = float(value)
    return found


def _values(table: Any, where: str, problems: list[str]) -> Values:
    if not isinstance(table, Mapping):
        problems.append(f"{where} must be a table")
        return {}
    for name, value in table.items():
        if name not in NAMES:
            problems.append(f"{where}.{name} is no efficiency; known are {', '.join(sorted(NAMES))}")
        elif isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e6:
            problems.append(f"{where}.{name} = {value!r} must be a number of at least 0")
    return MappingProxyType(
        {name: float(value) for name, value in table.items() if name in NAMES and isinstance(value, (int, float))}
    )


def _rounded(values: Values) -> dict[str, float]:
    return {name: float(f"{value:.4g}") for name, value in values.items()}
