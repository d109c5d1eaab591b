"""Link rates: measured collectives of a device's own node or cluster turned into the shares and latencies of a calibration.

Read are what nccl-tests (and rccl-tests) and hccl_test print, and tables with the columns of `data/reference/allreduce.csv`:
`operation`, `n_devices`, `n_nodes`, `size_bytes`, `time_ns` (or `time_us`). A collective takes a latency and what its busiest rank
moves over the rate of its links (`perfkit.predict.cost.collectives`); both are fitted, by the least mean relative error.

What a rank moves of a size: 2(q-1)/q of it in an all-reduce, (q-1)/q in all-gather, reduce-scatter and all-to-all
(NVIDIA/nccl-tests, doc/PERFORMANCE.md); nccl-tests says it by the ratio of its two bandwidths. hccl_test prints neither the
operation nor the ranks: they are asked for.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log2
from typing import Any

import numpy as np
import pandas as pd

from perfkit.core.errors import InputError
from perfkit.core.plan_columns import Floats
from perfkit.core.spec.hardware import HardwareSpec

MOVED = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}
"""Shares (q-1)/q of its size that a rank moves in a collective."""
COLUMNS = ("operation", "n_devices", "n_nodes", "size_bytes")
NCCL = re.compile(r"^#\s+size\s+count\s+type\b.*\btime\s+algbw\s+busbw\b", re.MULTILINE)
HCCL = re.compile(r"^\s*data_size\s*\(Bytes\)", re.MULTILINE)
RANK = re.compile(r"^#\s+Rank\s+\d+\b.*\bon\s+(\S+)\s+device\s+\d+\s+(?:\[[^\]]*\]\s*)?(.*)$", re.MULTILINE)
ROUNDS = 20
TINY = 1e-9


@dataclass(frozen=True, slots=True)
class Timing:
    """One measured size of a collective: what its busiest rank moves, and where it stands; `device` as the test prints it."""

    num_ranks: int
    num_nodes: int
    moved_bytes: float
    time_s: float
    line: int
    device: str = ""

    @property
    def bytes_per_s(self) -> float:
        """What a rank moves in a second."""
        return self.moved_bytes / self.time_s


def is_link_rates(text: str) -> bool:
    """Whether a text is what one of the tests prints, or a table of measured collectives."""
    header = set(text.partition("\n")[0].split(","))
    return bool(NCCL.search(text) or HCCL.search(text)) or {"operation", "size_bytes"} <= header


def read_link_rates(text: str, name: str, *, operation: str = "", num_ranks: int = 0, num_nodes: int = 0) -> tuple[Timing, ...]:
    """The measured sizes of a text.

    What a file says about its ranks and nodes counts more than the arguments. Raises InputError with all lines that cannot be, and
    with what a file leaves open.
    """
    if operation and operation not in MOVED:
        raise InputError(name, [f"operation = {operation!r} must be one of {', '.join(MOVED)}"])
    if NCCL.search(text):
        rows, problems = _of_nccl_tests(text, num_ranks, num_nodes)
    elif HCCL.search(text):
        rows, problems = _of_hccl_test(text, operation, num_ranks, num_nodes)
    else:
        rows, problems = _of_table(text)
    problems += [f"line {row.line}: a time of {row.time_s:g} s must be positive" for row in rows if not row.time_s > 0]
    if not rows and not problems:
        problems = ["no measured size was found"]
    if problems:
        raise InputError(name, problems)
    return tuple(rows)


def fit_links(timings: Sequence[Timing], device: HardwareSpec, name: str = "link rates") -> dict[str, float]:
    """The shares and latencies of a device's links that collectives speak about, and the mean relative `error` that they leave.

    Of groups in one node the largest gives `intra_share` and `intra_latency_s`, groups of 2 and of 3 or 4 `pair` and `quad`, those
    over several nodes `inter_share` and `inter_latency_s`. Raises InputError where a rank moves more than its links can, or where
    the test was run on another device.
    """
    problems = [*_of_another_device(timings, device), *_above_peak(timings, device)]
    if problems:
        raise InputError(name, problems)
    groups: dict[tuple[int, int], list[Timing]] = {}
    for timing in timings:
        groups.setdefault((timing.num_nodes, timing.num_ranks), []).append(timing)
    fitted = {key: _line(own) for key, own in groups.items()}
    found = _inside({ranks: line for (nodes, ranks), line in fitted.items() if nodes == 1}, device)
    if across := {key: line for key, line in fitted.items() if key[0] > 1}:
        (nodes, ranks), (latency, rate) = max(across.items())
        each = max(1, ranks // nodes)
        hops = found.get("intra_latency_s", 0.0) * (2.0 + log2(each)) if each > 1 else 0.0
        found["inter_share"] = rate / _peak(device, nodes, ranks)
        found["inter_latency_s"] = max(0.0, latency - hops) / log2(nodes)
    told = [(fitted[key][0] + timing.moved_bytes / fitted[key][1]) / timing.time_s for key in fitted for timing in groups[key]]
    return found | {"error": float(np.mean(np.abs(np.array(told) - 1.0)))}


def _inside(lines: Mapping[int, tuple[float, float]], device: HardwareSpec) -> dict[str, float]:
    """What groups inside a node say, latency and rate by their size."""
    if not lines:
        return {}
    whole = max(lines)
    latency, rate = lines[whole]
    found = {"intra_share": rate / _peak(device, 1, whole), "intra_latency_s": latency / (2.0 + log2(whole))}
    for part, sizes in (("pair", (2,)), ("quad", (4, 3))):
        own = next((lines[size] for size in sizes if size in lines and size < whole), None)
        if own is not None and not device.is_mesh:  # In a full mesh a group has the links to its own ranks.
            found[part] = min(1.0, own[1] / rate)
    return found


def _peak(device: HardwareSpec, nodes: int, ranks: int) -> float:
    """Bytes/s that the links of a device give one rank of a ring: inside a node its own, between nodes those of all of its node."""
    if nodes == 1:
        return device.links["intra_node"].bytes_per_s
    return device.links["inter_node"].bytes_per_s * min(max(1, ranks // nodes), device.devices_per_node)


def _line(timings: Sequence[Timing]) -> tuple[float, float]:
    """Latency in s and rate in bytes/s of one group: least mean relative error, by reweighted least squares."""
    time, moved = (np.array([getattr(one, name) for one in timings], dtype=np.float64) for name in ("time_s", "moved_bytes"))
    weights, usual = np.ones(len(time)), (0.0, float(np.median(moved / time)))
    if len(np.unique(moved)) < 2:
        return usual
    latency = inverse = 0.0
    for _ in range(ROUNDS):
        terms: Floats = np.stack([1.0 / time, moved / time], axis=1) * weights[:, None]
        latency, inverse = np.linalg.lstsq(terms, weights, rcond=None)[0].tolist()
        weights = 1.0 / np.sqrt(np.maximum(np.abs((latency + inverse * moved) / time - 1.0), TINY))
    # Sizes that say nothing about one of the two.
    return (latency, 1.0 / inverse) if latency >= 0 and inverse > 0 else usual


def is_of_another_device(printed: str, device: HardwareSpec) -> bool:
    """Whether a name that a test or library prints is that of another device."""
    family = re.match(r"(?:Ascend-|TPU-)?([A-Za-z]*\d+\w*)", device.name)
    return family is not None and family[1].lower() not in printed.lower()


def _of_another_device(timings: Sequence[Timing], device: HardwareSpec) -> Iterator[str]:
    for printed in dict.fromkeys(timing.device for timing in timings):
        if printed and is_of_another_device(printed, device):
            yield f"the test was run on {printed!r}, not on {device.name}"


def _above_peak(timings: Sequence[Timing], device: HardwareSpec) -> Iterator[str]:
    for timing in timings:
        peak = _peak(device, timing.num_nodes, timing.num_ranks)
        if timing.bytes_per_s > peak:
            rates = f"{timing.bytes_per_s / 1e9:.4g} GB/s of a rank is above the {peak / 1e9:.4g} GB/s"
            yield f"line {timing.line}: {rates} of the links of {device.name}"


def _of_nccl_tests(text: str, num_ranks: int, num_nodes: int) -> tuple[list[Timing], list[str]]:
    printed = RANK.findall(text)
    ranks, nodes = len(printed) or num_ranks, len({host for host, _ in printed}) or num_nodes or 1
    problems = [] if ranks > 1 else ['the text names no ranks ("# Rank ..."): say how many with --ranks']
    device = printed[0][1].strip() if printed else ""
    header: list[str] = []
    rows: list[Timing] = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.lstrip("#").split()
        if NCCL.match(line):
            header = words
        elif header and words and not line.startswith("#") and words[0].isdigit():
            cells = dict(zip(reversed(header), reversed(words[: len(header)]), strict=False)) if len(words) >= len(header) else {}
            numbers = _numbers(cells, ("size", "time", "algbw", "busbw"))
            if numbers is None:
                problems.append(f"line {number}: {line.strip()!r} does not fit the header")
            elif numbers["algbw"] > 0 and numbers["size"] > 0:
                moved = numbers["size"] * numbers["busbw"] / numbers["algbw"]
                rows.append(Timing(ranks, nodes, moved, numbers["time"] * 1e-6, number, device))
    return rows, problems


def _of_hccl_test(text: str, operation: str, num_ranks: int, num_nodes: int) -> tuple[list[Timing], list[str]]:
    problems = [] if operation else [f"hccl_test does not print which collective it ran: say it with --operation {'|'.join(MOVED)}"]
    problems += [] if num_ranks > 1 else ["hccl_test does not print its ranks: say how many with --ranks"]
    rows = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = [word.strip() for word in line.split("|")]
        if len(words) >= 3 and words[0].isdigit():
            numbers = _numbers(dict(zip(("size", "time"), words, strict=False)), ("size", "time"))
            if numbers is None or words[-1].lower() == "failed":
                problems.append(f"line {number}: {line.strip()!r} is no measured size")
            elif not problems and numbers["size"] > 0:
                moved = numbers["size"] * MOVED[operation] * (num_ranks - 1) / num_ranks
                rows.append(Timing(num_ranks, max(1, num_nodes), moved, numbers["time"] * 1e-6, number))
    return rows, problems


def _of_table(text: str) -> tuple[list[Timing], list[str]]:
    frame = pd.read_csv(io.StringIO(text))
    unit = next((one for one in (("time_ns", 1e-9), ("time_us", 1e-6)) if one[0] in frame), None)
    problems = [f"column {name!r} is missing" for name in COLUMNS if name not in frame]
    problems += [] if unit else ["column 'time_ns' is missing"]
    if problems or unit is None:
        return [], problems
    rows = []
    for place, row in enumerate(frame.to_dict("records")):
        numbers = _numbers(row, ("n_devices", "n_nodes", "size_bytes", unit[0]))
        moved = MOVED.get(str(row["operation"]))
        if numbers is None or moved is None or numbers["n_devices"] < 2 or numbers["n_nodes"] < 1:
            shown = {name: row[name] for name in (*COLUMNS, unit[0])}
            problems.append(
                f"line {place + 2}: {shown} is no collective of {', '.join(MOVED)} with its ranks, nodes, size and time"
            )
            continue
        ranks = int(numbers["n_devices"])
        bytes_each = numbers["size_bytes"] * moved * (ranks - 1) / ranks
        rows.append(
            Timing(
                ranks, int(numbers["n_nodes"]), bytes_each, numbers[unit[0]] * unit[1], place + 2, str(row.get("accelerator", ""))
            )
        )
    return rows, problems


def _numbers(cells: Mapping[Any, Any], names: Sequence[str]) -> dict[str, float] | None:
    """Finite numbers of some cells; None if one is none."""
    try:
        found = {name: float(cells[name]) for name in names}
    except (KeyError, TypeError, ValueError):
        return None
    return found if all(map(np.isfinite, found.values())) else None
