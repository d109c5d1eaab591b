"""MindSpore's parallel_strategy_<rank>.json: the graph of a rank with the strategy of every operator, as Insight draws it.

`config` states rank, stage, parallel mode and, by stage, the devices; each operator of `graph` has the strategy that it was given
(`gen_strategy`, of semi-automatic and automatic parallelism): into how many pieces every dimension of each input is cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from perfkit.core.errors import InputError
from perfkit.record.formats.ascend.json import read_json
from perfkit.record.listing import File

MOST_TOLD = 6
MAX_DEPTH = 3


@dataclass(frozen=True, slots=True)
class Strategy:
    """What one file states: its mode, the ranks of every stage, and how often an operator type has which strategy."""

    mode: str
    stages: tuple[tuple[int, ...], ...]
    cuts: Counter[tuple[str, str]]

    @property
    def text(self) -> str:
        """The most frequent strategies that cut anything: "Conv2D (2,1,1,1) (1,1,1,1) x 3"."""
        cut = [
            (key, count)
            for key, count in self.cuts.most_common()
            if any(size.isdecimal() and size != "1" for size in _sizes(key[1]))
        ]
        told = ", ".join(f"{operator} {how} x {count}" for (operator, how), count in cut[:MOST_TOLD])
        rest = len(cut) - MOST_TOLD
        return (told + (f" and {rest} more" if rest > 0 else "")) or "no operator is cut"


def read_strategy(file: File) -> Strategy:
    """Read one file; raises InputError where it is no such file."""
    content, _ = read_json(file)
    try:
        config, nodes = content["config"], content["graph"].get("node", [])
        stages = tuple(tuple(int(entry["size"]) for entry in stage.get("dim", [])) for stage in config["stageDevices"])
        mode = str(config["parallelType"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        message = f"config states no parallelType and stageDevices ({type(error).__name__}: {error})"
        raise InputError(file.label, [f"{file.label}: {message}"]) from error
    cuts = Counter((str(node.get("opType", "")), how) for node in nodes if isinstance(node, dict) for how in _strategies(node))
    return Strategy(mode=mode, stages=stages, cuts=cuts)


def _strategies(node: dict[str, Any]) -> Iterator[str]:
    attributes = node.get("attribute")
    for entry in attributes if isinstance(attributes, list) else ():
        if isinstance(entry, dict) and entry.get("name") == "gen_strategy":
            value = entry.get("value")
            inputs = value.get("values") if isinstance(value, dict) else None
            yield " ".join(_cut(each) for each in inputs) if isinstance(inputs, list) else "?"


def _cut(value: Any, depth: int = 0) -> str:
    """One input's strategy as in Python; "?" for what is none."""
    if isinstance(value, dict) and "intVal" in value:
        return str(value["intVal"])[:12]
    if isinstance(value, dict) and isinstance(value.get("values"), list) and depth < MAX_DEPTH:
        return f"({','.join(_cut(entry, depth + 1) for entry in value['values'])})"
    return "?"


def _sizes(how: str) -> list[str]:
    return how.replace("(", " ").replace(")", " ").replace(",", " ").split()
