"""Scaling: how much of the speed of a small run is kept when it grows.

Linearity is the throughput of a large run over that of a small one times the growth. The base is given with its number of
devices: a guide divides a node's throughput by the number of cards, which makes eight-card nodes look eight times too bad
(erratum X12). Above 0.8 a cluster counts as scaling well (same guide).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import pandas as pd

from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.core.texts import say
from perfkit.core.units import format_ratio, significant

GOOD_LINEARITY = 0.8
OWN = "yours"
"""What the points of one's own runs are called beside published ones."""


def linearity(tokens_per_s: float, num_devices: int, base_tokens_per_s: float, base_devices: int) -> float:
    """Throughput kept when growing from `base_devices` to `num_devices`: 1 is perfect, above 0.8 good.

    `tokens_per_s` and `base_tokens_per_s` are of all devices of their run. Base: 1 for a device, 8 for a node of eight.
    """
    return tokens_per_s / _ideal_tokens_per_s(tokens_per_s, num_devices, base_tokens_per_s, base_devices)


def parse_runs(text: str) -> list[tuple[str, int, float]]:
    """Runs `(name, num_devices, tokens_per_s)` written as "devices: tokens/s" of the whole job, between commas or semicolons.

    Thousands may be split by spaces or underscores. Raises InputError that lists every piece that is no run.
    """
    runs: list[tuple[str, int, float]] = []
    problems: list[str] = []
    for piece in (part.strip() for part in text.replace(";", ",").split(",") if part.strip()):
        devices, _, rate = (side.strip().replace(" ", "").replace("_", "") for side in piece.partition(":"))
        try:
            runs.append((f"{int(devices)} device{'s' * (int(devices) != 1)}", int(devices), float(rate)))
        except ValueError:
            problems.append(f"{piece!r} is no run; write devices: tokens/s, for example 64: 270000")
    if problems:
        raise InputError("runs", problems)
    return runs


def linearity_told(table: pd.DataFrame) -> str:
    """How much of the throughput the largest run of a `linearity_table` keeps, in a sentence."""
    base, last = table.iloc[0], table.iloc[-1]
    if len(table) == 1:
        return f"One run of {int(base['num_devices'])} devices: add a larger one to see how the job scales."
    verdict = "good" if last["good"] else f"below {format_ratio(GOOD_LINEARITY)}: look at communication"
    kept, ideal = (significant(float(last[name]), 4) for name in ("tokens_per_s", "ideal_tokens_per_s"))
    grown = f"From {int(base['num_devices'])} to {int(last['num_devices'])} devices"
    share = format_ratio(float(last["linearity_ratio"]), 4)
    return f"{grown} {share} of the throughput is kept ({kept} of {ideal} tokens/s): {verdict}."


def published_mfu() -> pd.DataFrame:
    """MFU that published runs report against their number of devices; columns `name`, `device`, `num_devices`, `mfu`, `source`.

    Rows of `data/reference/step_time.csv` that state both and are not set aside there: each in the convention of its source.
    """
    file = data_folder() / "reference" / "step_time.csv"
    rows = pd.read_csv(file, usecols=["model", "accelerator", "n_devices", "reported_mfu", "source", "exclude"])
    stated = rows[rows["reported_mfu"].notna() & rows["n_devices"].notna() & (rows["exclude"] == 0)]
    named = {"model": "name", "accelerator": "device", "n_devices": "num_devices", "reported_mfu": "mfu"}
    found = stated.rename(columns=named)[["name", "device", "num_devices", "mfu", "source"]].reset_index(drop=True)
    found.attrs["labels"] = {"num_devices": "devices"}
    return found


def mfu_points(name: str, num_devices: float | None, mfu: float | None) -> pd.DataFrame:
    """Published MFU and below it one's own, which is left out while it is not known; its devices may be missing."""
    published = published_mfu().astype({"num_devices": "Int64"})
    if mfu is None:
        return published
    devices = pd.NA if num_devices is None else int(num_devices)
    own = pd.DataFrame([(name, OWN, devices, mfu, OWN)], columns=published.columns).astype({"num_devices": "Int64"})
    found = pd.concat([published, own], ignore_index=True)
    found.attrs = published.attrs
    return found


def mfu_told(points: pd.DataFrame) -> str:
    """Where one's own MFU lies among published runs of about as many devices (half to twice), in a sentence."""
    own, published = points[points["device"] == OWN], points[points["device"] != OWN]
    if own.empty:
        return say("{runs} published runs; to place your own log both its MFU and its devices must be known.", runs=len(published))
    share = float(own["mfu"].iloc[0])
    if own["num_devices"].isna().any():
        form = (
            "MFU is {mfu_ratio}, that of {runs} published runs {low_ratio} to {high_ratio}; to place it, its devices must be known."
        )
        low, high = float(published["mfu"].min()), float(published["mfu"].max())
        return say(form, mfu_ratio=share, runs=len(published), low_ratio=low, high_ratio=high)
    devices = int(own["num_devices"].iloc[0])
    near = published[published["num_devices"].between(devices / 2, devices * 2)]["mfu"]
    if near.empty:
        low, high = int(published["num_devices"].min()), int(published["num_devices"].max())
        form = "MFU is {mfu_ratio} on {devices} devices: published runs have {low} to {high}, so that none is like it."
        return say(form, mfu_ratio=share, devices=devices, low=low, high=high)
    return say(
        "MFU is {mfu_ratio} on {devices} devices: {runs} published runs of half to twice as many have {low_ratio} to {high_ratio}, "
        "median {median_ratio}.",
        mfu_ratio=share,
        devices=devices,
        runs=len(near),
        low_ratio=float(near.min()),
        high_ratio=float(near.max()),
        median_ratio=float(near.median()),
    )


def linearity_table(runs: Iterable[tuple[str, int, float]]) -> pd.DataFrame:
    """Linearity of several runs `(name, num_devices, tokens_per_s)` against the one with the fewest devices.

    One row a run, by devices: `name`, `num_devices`, `tokens_per_s`, `ideal_tokens_per_s`, `linearity_ratio`, `good`.
    """
    rows = sorted(runs, key=lambda run: run[1])
    if not rows:
        raise InputError("linearity", ["no run is given; one or more are needed"])
    _, base_devices, base = rows[0]
    table = []
    for name, num_devices, tokens_per_s in rows:
        ideal = _ideal_tokens_per_s(tokens_per_s, num_devices, base, base_devices)
        kept = tokens_per_s / ideal
        table.append((name, num_devices, tokens_per_s, ideal, kept, kept > GOOD_LINEARITY))
    columns = ["name", "num_devices", "tokens_per_s", "ideal_tokens_per_s", "linearity_ratio", "good"]
    frame = pd.DataFrame(table, columns=columns)
    frame.attrs["labels"] = {"num_devices": "devices"}
    return frame


def _ideal_tokens_per_s(tokens_per_s: float, num_devices: int, base_tokens_per_s: float, base_devices: int) -> float:
    named = {
        "tokens_per_s": tokens_per_s,
        "num_devices": num_devices,
        "base_tokens_per_s": base_tokens_per_s,
        "base_devices": base_devices,
    }
    problems = [f"{name} = {value} must be positive" for name, value in named.items() if not (math.isfinite(value) and value > 0)]
    if problems:
        raise InputError("linearity", problems)
    return base_tokens_per_s * num_devices / base_devices
