"""Catalogue: published model shapes, devices and measured cases, each number with its source.

The data are `data/models.toml`, `data/hardware.toml` and `data/reference/*.csv`. A `models.toml` or `hardware.toml` beside the
perfkit.toml of the project adds to them, and wins where it has the same name. Mappings are read once and are read-only.
"""

from __future__ import annotations

import csv
import difflib
import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from perfkit.core import settings
from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.core.source import Source
from perfkit.core.spec.compressed import CompressedAttention
from perfkit.core.spec.hardware import HardwareSpec, Link
from perfkit.core.spec.model import ModelSpec

_Entry = TypeVar("_Entry")

RECORD_KEYS = ("seq_length", "published_parameters", "source")


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelRecord:
    """A model of the catalogue: its shape, the tokens of a training sequence, the count its authors publish, and the source."""

    spec: ModelSpec
    seq_length: int
    published_parameters: int
    source: Source


def records() -> Mapping[str, ModelRecord]:
    """All models by name, the project's first, with what is published about them. Raises InputError for a file that is wrong."""
    return _merged_records(*_own("models.toml"))


@cache
def _merged_records(path: str, modified_ns: int) -> Mapping[str, ModelRecord]:
    bundled = {name: _record(name, table) for name, table in _toml("models.toml").items()}
    return MappingProxyType({**read_models(path), **bundled, **read_models(path)} if modified_ns else bundled)


def models() -> Mapping[str, ModelSpec]:
    """All model shapes by name, such as "llama2-7b", the project's first."""
    return _specs(*_own("models.toml"))


@cache
def _specs(path: str, modified_ns: int) -> Mapping[str, ModelSpec]:
    return MappingProxyType({name: record.spec for name, record in _merged_records(path, modified_ns).items()})


def read_models(path: str | Path) -> Mapping[str, ModelRecord]:
    """Models from a file in the form of `data/models.toml`; `seq_length`, `published_parameters` and `source` may be left out.

    Raises InputError that lists what is missing or wrong in every table.
    """
    defaults = {"seq_length": 4096, "published_parameters": 0, "source": str(path)}
    return _tables(path, lambda name, table: _record(name, {**defaults, **table}), "a model needs the fields of data/models.toml")


def model(name: str) -> ModelSpec:
    """The shape of one model; case, `_` and `-` do not matter. Raises InputError that names the nearest models."""
    known = models()
    return known[_pick(name, known, "model")]


def find_model(name: str) -> ModelSpec | None:
    """The shape of a model whose name is `name` but for case, `_` and `-`, or None."""
    known = {_plain(candidate): candidate for candidate in models()}
    return models().get(known.get(_plain(name), ""))


def model_of_sizes(num_layers: int, *sizes: int) -> ModelSpec | None:
    """The model that has these sizes: hidden, heads, ffn; of several one with as many layers, or any if all have one vocabulary."""
    found = [one for one in models().values() if (one.hidden_size, one.num_attention_heads, one.ffn_hidden_size) == sizes]
    found = [one for one in found if one.num_layers == num_layers] or found
    return found[0] if len({one.vocab_size for one in found}) == 1 else None


def hardware() -> Mapping[str, HardwareSpec]:
    """All devices by name, such as "Ascend-910B2"; the project's come first, then presets such as "Ascend 376" of known devices."""
    return _merged_hardware(*_own("hardware.toml"))


@cache
def _merged_hardware(path: str, modified_ns: int) -> Mapping[str, HardwareSpec]:
    tables = _toml("hardware.toml")
    aliases = tables.pop("aliases")
    devices = {name: _device(name, table) for name, table in tables.items()}
    own = dict(read_hardware(path)) if modified_ns else {}
    return MappingProxyType(own | {preset: devices[name] for preset, name in aliases.items()} | devices | own)


def hardware_named(name: str) -> HardwareSpec:
    """One device, also by the first words of its name if no other begins so; case, `_`, `-` and spaces do not matter.

    Raises InputError that names those that begin so, or the nearest devices.
    """
    known = hardware()
    return known[_pick(name, known, "device")]


def read_hardware(path: str | Path) -> Mapping[str, HardwareSpec]:
    """Devices from a file in the form of `data/hardware.toml`, such as `hardware.toml` beside a project.

    Raises InputError that lists what is missing or wrong in every table.
    """
    defaults = {"links": {}, "devices_per_node": 8, "source": str(path)}
    needed = "needs peak_flops_per_s, memory_bytes, memory_bytes_per_s and links as in data/hardware.toml"
    return _tables(path, lambda name, table: _device(name, {**defaults, **table}), needed)


@cache
def published_rows() -> tuple[Mapping[str, str], ...]:
    """Throughputs and utilisations that guides print, as text cells by column; an empty cell means "not stated"."""
    with (data_folder() / "reference" / "published.csv").open(encoding="utf-8", newline="") as file:
        return tuple(MappingProxyType(row) for row in csv.DictReader(file))


def _own(file: str) -> tuple[str, int]:
    """The file of that name beside the project's perfkit.toml, and when it was changed; 0 if there is none."""
    folder = settings.find_project()
    path = folder / file if folder is not None else None
    return (str(path), path.stat().st_mtime_ns) if path is not None and path.is_file() else ("", 0)


def _tables(path: str | Path, make: Callable[[str, Mapping[str, Any]], _Entry], needed: str) -> Mapping[str, _Entry]:
    """One entry a table of a TOML file; raises InputError with the problems of all."""
    try:
        tables = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(str(path), [f"the file cannot be read: {error.strerror}"]) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(str(path), [f"not TOML: {error}"]) from error
    found, problems = {}, []
    for name, table in tables.items():
        try:
            found[name] = make(name, table)
        except InputError as error:
            problems += [f"{name}: {problem}" for problem in error.problems]
        except (KeyError, TypeError, AttributeError) as error:
            problems.append(f"{name}: {needed} ({error})")
    if problems:
        raise InputError(str(path), problems)
    return MappingProxyType(found)


def _record(name: str, table: Mapping[str, Any]) -> ModelRecord:
    shape = {key: value for key, value in table.items() if key not in RECORD_KEYS}
    if "compressed" in shape:
        shape["compressed"] = CompressedAttention(**shape["compressed"])
    return ModelRecord(
        spec=ModelSpec(name=name, **shape),
        seq_length=table["seq_length"],
        published_parameters=table["published_parameters"],
        source=Source("published", table["source"]),
    )


def _device(name: str, table: Mapping[str, Any]) -> HardwareSpec:
    fields = ["peak_flops_per_s", "memory_bytes", "memory_bytes_per_s", "devices_per_node"]
    fields += [f"links.{link}" for link in table["links"]]
    assumed, sources, note = table.get("assumed", ()), table.get("sources", {}), table.get("note", "")
    return HardwareSpec(
        name=name,
        peak_flops_per_s=table["peak_flops_per_s"],
        memory_bytes=table["memory_bytes"],
        memory_bytes_per_s=table["memory_bytes_per_s"],
        links={link: Link(name=link, **values) for link, values in table["links"].items()},
        devices_per_node=table["devices_per_node"],
        link_domain_size=table.get("link_domain_size", 0),
        matrix_units=table.get("matrix_units", 0),
        sources={
            field: Source("assumed" if field in assumed else "published", sources.get(field, table["source"]), note)
            for field in fields
        },
    )


def _toml(file: str) -> dict[str, Any]:
    return tomllib.loads((data_folder() / file).read_text(encoding="utf-8"))


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", "-", name.strip().lower())


def _pick(name: str, names: Collection[str], kind: str) -> str:
    if name in names:
        return name
    known = {_plain(candidate): candidate for candidate in names}
    if _plain(name) in known:
        return known[_plain(name)]
    variants = [found for found in known if kind == "device" and found.startswith(f"{_plain(name)}-")]
    if len(variants) == 1:
        return known[variants[0]]
    nearest = variants or difflib.get_close_matches(_plain(name), known, n=3, cutoff=0.4)
    hint = f"did you mean {', '.join(known[near] for near in nearest)}?" if nearest else f"known are {', '.join(known.values())}"
    raise InputError("catalogue", [f"no {kind} is called {name!r}; {hint}"])
