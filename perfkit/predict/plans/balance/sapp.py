"""SAPP's own files: the YAML from which it starts (pipeline_config, time_config, memory_usage) and its JSON of layers.

As the tool reads them (mindspore-lab/mindformers toolkit/pipeline_balance): times are milliseconds of forward and backward of a
micro batch, a third of it forward; recomputation makes the backward pass longer by 4 % (chosen operators), 12.5 % (communication),
16.5 % (both) or 50 % (all); memory is in MB of 2^20 bytes, and what a layer keeps is found from the peaks of stages with different
layers (`perfkit.predict.dryrun.decompose`). Counts of chosen operators and communication contain the full layers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from perfkit.core.errors import InputError
from perfkit.core.spec.plan import even_layers
from perfkit.core.units import MIB, NS_PER_MS
from perfkit.predict.dryrun import StagePeak, decompose
from perfkit.predict.plans.balance.problem import EndPart, Kind, LayerType, PipelineProblem

MARKS = re.compile(r"^\s*pipeline_config\s*:(?=.*^\s*(?:memory_usage|time_config|profiling_config)\s*:)", re.MULTILINE | re.DOTALL)
LAYERS = re.compile(r"\"layers_description\"\s*:")
FORWARD = 1 / 3
LONGER = {"none": 0.0, "select": 0.04, "comm": 0.125, "both": 0.165, "full": 0.5}
MEMORY = {
    "none": "memory_activation",
    "select": "memory_select_rec",
    "comm": "memory_select_comm",
    "both": "memory_both_comm_select",
    "full": "memory_recompute",
}
TIMES = {
    "none": "backward_time",
    "select": "select_rec_time",
    "comm": "select_comm_time",
    "both": "both_comm_select_time",
    "full": "recompute_time",
}
LISTS = {"full": "recompute", "select": "select_recompute", "comm": "select_comm_recompute"}
USUAL_STAGES, USUAL_MICRO_BATCHES, USUAL_MEMORY = 4, 4, 56_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What SAPP takes from its command line; None stands for its default, which is then said."""

    stages: int | None = None
    micro_batches: int | None = None
    memory_limit_bytes: float | None = None


def is_sapp(text: str) -> bool:
    """Whether a text is one of SAPP's files."""
    return (text.lstrip().startswith("{") and LAYERS.search(text) is not None) or MARKS.search(text) is not None


def read_sapp(text: str, name: str, asked: Asked | None = None) -> PipelineProblem:
    """The problem of one of SAPP's files. Raises InputError with everything that is wrong or missing."""
    options = asked or Asked()
    try:
        values = json.loads(text) if text.lstrip().startswith("{") else yaml.safe_load(text)
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise InputError(name, [f"can be read neither as YAML nor as JSON: {error}"]) from error
    if not isinstance(values, dict):
        raise InputError(name, ["must hold names and values"])
    problems: list[str] = []
    found = _Layers(values, problems) if "layers_description" in values else _Start(values, problems)
    parts = found.parts()
    if problems:
        raise InputError(name, problems)
    stages, micro, limit, notes = _sizes(options, found.stages, found.micro_batches)
    return PipelineProblem(
        schedule="1f1b",
        num_stages=stages,
        num_microbatches=micro,
        memory_limit_bytes=limit,
        assumptions=("times are milliseconds, memory is in MB of 2^20 bytes, as SAPP has them", *notes, *found.notes),
        **parts,
    )


def write_layers(problem: PipelineProblem, name: str = "model_name") -> str:
    """The layers of a problem as SAPP's JSON of layers, with times in milliseconds and memory in MB."""
    layers = [_ends("HEAD", "head", problem.head), *map(_body, problem.body), _ends("TAIL", "tail", problem.tail)]
    document = {
        "name": name,
        "pre_defined_layer": {"head": 0, "tail": -1},
        "auto_partition_layer": {part.name: part.count for part in problem.body},
        "layers_description": layers,
    }
    return json.dumps(document, indent=2) + "\n"


def _ends(kind: str, name: str, part: EndPart | None) -> dict[str, Any]:
    forward, backward = (part.fwd_ns, part.bwd_ns) if part is not None else (0, 0)
    return {
        "name": name,
        "type": kind,
        "time": (forward + backward) / NS_PER_MS,
        "forward_time": forward / NS_PER_MS,
        "nb_layer": 1,
        "memory_parameter": (part.param_bytes if part is not None else 0) / MIB,
    }


def _body(part: LayerType) -> dict[str, Any]:
    kinds = {MEMORY[kind]: value.act_bytes / MIB for kind, value in part.kinds.items()}
    times = {TIMES[kind]: value.bwd_ns / NS_PER_MS for kind, value in part.kinds.items()}
    plain = part.kinds.get("none") or next(iter(part.kinds.values()))
    return {
        "name": part.name,
        "type": "BODY",
        "time": (part.fwd_ns + plain.bwd_ns) / NS_PER_MS,
        "forward_time": part.fwd_ns / NS_PER_MS,
        "nb_layer": part.count,
        "memory_parameter": part.param_bytes / MIB,
        **kinds,
        **times,
    }


def _sizes(asked: Asked, stages: int | None, micro_batches: int | None) -> tuple[int, int, int, list[str]]:
    notes = []
    found = asked.stages or stages
    if not found:
        notes.append(f"{USUAL_STAGES} stages, SAPP's default")
    micro = asked.micro_batches or micro_batches
    if not micro:
        notes.append(f"{USUAL_MICRO_BATCHES} micro batches, SAPP's default")
    limit = asked.memory_limit_bytes
    if limit is None:
        notes.append(f"a limit of {USUAL_MEMORY} MB, SAPP's default")
    return found or USUAL_STAGES, micro or USUAL_MICRO_BATCHES, round(limit if limit is not None else USUAL_MEMORY * MIB), notes


def _kinds(total_ns: float, kept: Mapping[str, float], stated: Mapping[str, float]) -> dict[str, Kind]:
    """Kinds of recomputation with the bytes that they keep; backward times where they are not stated follow from the total."""
    plain = stated.get("none", (1 - FORWARD) * total_ns)
    return {
        kind: Kind(bwd_ns=round(stated.get(kind, plain * (1 + LONGER[kind]))), act_bytes=max(0, round(size)))
        for kind, size in kept.items()
    }


class _Layers:
    """A JSON of layers: `layers_description` with HEAD, BODY and TAIL."""

    stages: int | None = None
    micro_batches: int | None = None

    def __init__(self, values: Mapping[str, Any], problems: list[str]) -> None:
        self.rows, self.problems = values["layers_description"], problems
        self.notes: tuple[str, ...] = ()

    def parts(self) -> dict[str, Any]:
        rows = [row for row in self.rows if isinstance(row, Mapping)] if isinstance(self.rows, list) else []
        if not any(row.get("type") == "BODY" for row in rows):
            self.problems.append("layers_description has no layer of type BODY")
        body = tuple(self._layer(row) for row in rows if row.get("type") == "BODY")
        return {"body": body, "head": self._end(rows, "HEAD"), "tail": self._end(rows, "TAIL")}

    def _number(self, row: Mapping[str, Any], key: str, default: float | None = None) -> float:
        value = row.get(key, row.get(f"{key} ", default))
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            self.problems.append(f"{row.get('name', 'layer')}.{key} = {value!r} must be a number of at least 0")
            return 0.0
        return float(value)

    def _layer(self, row: Mapping[str, Any]) -> LayerType:
        total = self._number(row, "time") * NS_PER_MS
        forward = self._number(row, "forward_time", FORWARD * total / NS_PER_MS) * NS_PER_MS
        kept = {
            kind: self._number(row, key) * MIB for kind, key in MEMORY.items() if row.get(key, row.get(f"{key} ")) not in (None, 0)
        }
        given = {kind: self._number(row, key) * NS_PER_MS for kind, key in TIMES.items() if row.get(key, row.get(f"{key} "))}
        if not kept:
            self.problems.append(f"{row.get('name', 'layer')} states no memory of activations, such as {MEMORY['none']}")
            kept = {"none": 0.0}
        return LayerType(
            name=str(row.get("name", "layer")),
            count=max(1, int(self._number(row, "nb_layer", 1))),
            fwd_ns=round(forward),
            param_bytes=round(self._number(row, "memory_parameter", 0) * MIB),
            kinds=_kinds(total, kept, given),
        )

    def _end(self, rows: list[Mapping[str, Any]], kind: str) -> EndPart | None:
        ends = [row for row in rows if row.get("type") == kind]
        if not ends:
            return None
        total = sum(self._number(row, "time") for row in ends) * NS_PER_MS
        forward = sum(self._number(row, "forward_time", FORWARD * self._number(row, "time")) for row in ends) * NS_PER_MS
        memory = sum(self._number(row, "memory_parameter", 0) for row in ends) * MIB
        return EndPart(fwd_ns=round(forward), bwd_ns=round(total - forward), param_bytes=round(memory))


class _Start:
    """A YAML from which SAPP starts: what was run, its times, and the peaks of its stages, in one round or several."""

    def __init__(self, values: Mapping[str, Any], problems: list[str]) -> None:
        self.values, self.problems = values, problems
        self.notes: tuple[str, ...] = ()
        self.stages: int | None = self._integer("pipeline_config", "pipeline_num")
        self.layers = self._integer("pipeline_config", "num_layer")
        profile = self._section("profiling_config", needed=False)
        micro = profile.get("micro_batch_num")
        self.micro_batches: int | None = micro if isinstance(micro, int) and not isinstance(micro, bool) and micro > 0 else None

    def _section(self, name: str, *, needed: bool = True) -> Mapping[str, Any]:
        value = self.values.get(name)
        if isinstance(value, Mapping):
            return value
        if needed:
            self.problems.append(f"the section {name} is missing")
        return {}

    def _integer(self, section: str, key: str) -> int:
        value = self._section(section).get(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            self.problems.append(f"{section}.{key} = {value!r} must be a whole number of at least 1")
            return 1
        return value

    def parts(self) -> dict[str, Any]:
        times, peaks = self._times(), self._peaks()
        if self.problems:
            return {}
        found = decompose(peaks, self.stages or 1)
        terms = {name: amount * MIB for name, amount in found.terms.items()}
        kept = {kind: terms[kind] for kind in LONGER if kind in terms}
        negative = [name for name, amount in terms.items() if amount < 0 and name != "const"]
        self.notes = (
            f"the peaks are met to {found.largest_error:.1%} by what their layers are found to keep",
            *([f"found below 0 and taken as 0: {', '.join(negative)}"] if negative else []),
        )
        head, body, tail = (times[name] * NS_PER_MS for name in ("head", "body", "tail"))
        layer = LayerType(
            name="layer",
            count=self.layers,
            fwd_ns=round(FORWARD * body),
            param_bytes=max(0, round(terms["param"])),
            kinds=_kinds(body, kept, {}),
        )
        ends = {
            name: EndPart(
                fwd_ns=round(FORWARD * time), bwd_ns=round((1 - FORWARD) * time), param_bytes=max(0, round(terms.get(name, 0.0)))
            )
            for name, time in (("head", head), ("tail", tail))
        }
        return {"body": (layer,), **ends, "const_bytes": round(terms["const"])}

    def _times(self) -> dict[str, float]:
        section = self._section("time_config", needed=False)
        if not section:
            self.problems.append("time_config is missing: give head, body and tail in ms (SAPP takes them from a recording)")
        found = {}
        for name in ("head", "body", "tail") if section else ():
            value = section.get(name)
            if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
                self.problems.append(f"time_config.{name} = {value!r} must be a number of at least 0")
            else:
                found[name] = float(value)
        return found

    def _peaks(self) -> list[StagePeak]:
        memory, stages = self._section("memory_usage"), self.stages or 1
        body = memory.get("body_memories")
        ids, sizes = (body.get(key) if isinstance(body, Mapping) else None for key in ("stage_id", "memories"))
        if not isinstance(ids, list) or not isinstance(sizes, list) or len(ids) != len(sizes) or not ids:
            self.problems.append("memory_usage.body_memories needs stage_id and memories, equally long")
            return []
        several = isinstance(ids[0], list)
        rounds = list(zip(ids, sizes, strict=True)) if several else [(ids, sizes)]
        peaks = []
        for number, (places, amounts) in enumerate(rounds):
            layers = self._layers(number, several)
            if not layers:
                return []
            ends = ((0, "head_memory"), (stages - 1, "tail_memory")) if number == 0 else ()
            given = [*zip(places, amounts, strict=False), *((stage, memory.get(key)) for stage, key in ends)]
            for stage, amount in given:
                if not isinstance(stage, int) or not 0 <= stage < stages or not isinstance(amount, int | float) or amount <= 0:
                    self.problems.append(
                        f"memory_usage: stage {stage!r} with {amount!r} MB is none of 0 to {stages - 1} with a peak"
                    )
                    continue
                peaks.append(StagePeak(stage=stage, layers=layers[stage], peak_bytes=float(amount)))
        return peaks

    def _layers(self, number: int, several: bool) -> list[dict[str, int]]:
        """Layers of each stage by kind of recomputation in a round."""
        stages = self.stages or 1
        counts = {kind: self._row("recompute_config", key, number, several) for kind, key in LISTS.items()}
        offset = self._row("pipeline_config", "offset", number, several)
        average = even_layers(self.layers // stages * stages, stages, 1)[0]
        if self.problems:
            return []
        rows = []
        for stage in range(stages):
            total = average[stage] + (offset[stage] if offset else 0)
            full, select, comm = (
                (total if row is None else row[stage]) if row != [] else 0
                for row in (counts["full"], counts["select"], counts["comm"])
            )
            both = max(0, min(select - full, comm - full))
            kinds = {"full": full, "both": both, "select": max(0, select - full - both), "comm": max(0, comm - full - both)}
            kinds["none"] = total - sum(kinds.values())
            if min(kinds.values()) < 0:
                self.problems.append(f"stage {stage} has {total} layers, of which more are recomputed: {kinds}")
            rows.append(kinds)
        return [] if self.problems else rows

    def _row(self, section: str, key: str, number: int, several: bool) -> list[int] | None:
        """Numbers by stage; an empty list for none, None for all layers."""
        value = self._section(section).get(key, False)
        if several and isinstance(value, list) and value and (isinstance(value[0], list) or len(value) != self.stages):
            value = value[number] if number < len(value) else False
        if value is False or value == 0:
            return []
        if value is True:
            return None
        if not isinstance(value, list) or len(value) != self.stages or not all(type(item) is int for item in value):
            self.problems.append(f"{section}.{key} = {str(value)[:60]} must be {self.stages} whole numbers, one a stage")
            return []
        return value
