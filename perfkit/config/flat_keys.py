"""Config: the keys of a configuration as flat rows, so that the difference of two rounds is a query.

Keys are dotted, values JSON. Lists are one value. A file is only parsed (safe YAML, TOML, or `--name value` arguments), never
executed; values that JSON does not have, such as dates, become their text.
"""

from __future__ import annotations

import json
import math
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from perfkit.config.dialects.dialect import Document
from perfkit.config.dialects.registry import dialects, recognised
from perfkit.config.dialects.yaml import loaded
from perfkit.core.errors import InputError

LARGEST_BYTES = 5_000_000
DEVICE_KEYS = ("data_parallel", "model_parallel", "pipeline_stage", "context_parallel")


def config_keys(path: Path) -> tuple[str, dict[str, Any]]:
    """The name of the dialect and the flat keys of a configuration file.

    Raises InputError for a file that is too large, no text, or no mapping of keys to values.
    """
    if path.stat().st_size > LARGEST_BYTES:
        raise InputError(str(path), [f"has {path.stat().st_size} bytes; a configuration has at most {LARGEST_BYTES}"])
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(str(path), [f"byte {error.start} is not UTF-8"]) from error
    values = _parsed(path, text)
    if not isinstance(values, Mapping) or not values:
        raise InputError(str(path), ["holds no keys; a configuration maps names to values"])
    return _dialect(path, text), dict(_flat(values))


def num_devices(keys: Mapping[str, Any]) -> int | None:
    """Devices that a MindFormers configuration asks for: the product of its parallel sizes; None if it does not say."""
    sizes = [keys.get(f"parallel_config.{name}") for name in DEVICE_KEYS]
    found = [size for size in sizes if isinstance(size, int) and not isinstance(size, bool)]
    return math.prod(found) if found and min(found) > 0 else None


def difference(old: Mapping[str, str], new: Mapping[str, str]) -> list[dict[str, Any]]:
    """Keys whose values differ, sorted: `key`, `old`, `new` (None where a side has no such key). Inputs are JSON by key.

    1, 1.0 and "1" are equal: configuration files differ in how they write numbers.
    """
    rows = []
    for key in sorted({*old, *new}):
        before, after = (json.loads(side[key]) if key in side else None for side in (old, new))
        if (key in old) != (key in new) or _canonical(before) != _canonical(after):
            rows.append({"key": key, "old": before, "new": after})
    return rows


def _dialect(path: Path, text: str) -> str:
    """The dialect that the content is in; of a fragment the first one that is written in such files."""
    suffix = {".yml": ".yaml", ".json": ".yaml"}.get(path.suffix.lower(), path.suffix.lower())
    likely = recognised(Document(name=path.name, text=text))
    return next((dialect.name for dialect in (*likely, *(one for one in dialects() if one.suffix == suffix))), "")


def _parsed(path: Path, text: str) -> Any:
    suffix = path.suffix.lower()
    try:
        if suffix in {".yaml", ".yml", ".json"}:
            return loaded(text)
        if suffix == ".toml":
            return tomllib.loads(text)
        return _arguments(shlex.split(text.replace("\\\n", " "), comments=True))
    except (yaml.YAMLError, tomllib.TOMLDecodeError, ValueError, RecursionError) as error:
        raise InputError(str(path), [f"cannot be parsed: {error}"]) from error


def _arguments(words: list[str]) -> dict[str, Any]:
    values: dict[str, list[str]] = {}
    name = None
    for word in words:
        if word.startswith("--"):
            name, separator, value = word[2:].partition("=")
            values[name] = [value] if separator else []
        elif name is not None:
            values[name].append(word)
    return {key: True if not found else found[0] if len(found) == 1 else found for key, found in values.items()}


def _flat(values: Mapping[Any, Any], parent: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        path = f"{parent}{key}"
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{path}.")
        else:
            yield path, _plain(value)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, (list, tuple, set)):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return str(value)


def _canonical(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, list):
        return [_canonical(item) for item in value]
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return value
