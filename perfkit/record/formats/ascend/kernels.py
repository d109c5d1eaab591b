"""Kernels: what ran on the device, from kernel_details.csv of one rank.

One row a device task or communication operation. Columns differ by profiler level and version, so they are read by name: level 0
has no type, core, stream and shapes. A row is communication if its core is HCCL (COMMUNICATION in newer versions) or its name
starts with "hcom_"; its duration includes waiting for peers. Times are us of the epoch with up to 3 decimals.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.core.errors import InputError
from perfkit.record import store
from perfkit.record.format import Sink
from perfkit.record.listing import File

NAME, START, DURATION = REQUIRED = ("Name", "Start Time(us)", "Duration(us)")
DEVICE = "Device_id"
_DEVICE_CELL: store.Cell = "int"
_COLUMNS: dict[str, store.Cell] = {
    "Step Id": "int",
    NAME: "label",
    "Type": "label",
    "Accelerator Core": "label",
    "Stream ID": "label",
    START: "us",
    DURATION: "us",
    "Wait Time(us)": "us",
    "Input Shapes": "label",
    "Input Data Types": "label",
}
_COMMUNICATION_CORES = ("HCCL", "COMMUNICATION")
_COPY_NAME = re.compile(r"memcpy|sdma", re.IGNORECASE)
_STACK = re.compile(r"[;\s]*[\r\n].*$", re.DOTALL)


def read_kernels(
    file: File, rank: int, sink: Sink, *, aliases: Mapping[str, str] = MappingProxyType({}), device: int | None = None
) -> tuple[pd.DataFrame, int]:
    """The kernels of one rank with the columns of the table `kernels`, and how many rows of the file could not be read.

    `aliases` names columns as other tools do, `device` leaves out rows of other devices. `step` is null where the file has no step.
    Raises InputError if the file is empty or has no names, starts or durations.
    """
    columns = {**_COLUMNS, DEVICE: _DEVICE_CELL, **{alias: _COLUMNS[name] for name, alias in aliases.items()}}
    csv = store.read_csv(file, columns, required=() if aliases else REQUIRED)
    absent = [name for name in REQUIRED if name in csv.absent and aliases.get(name, name) in csv.absent]
    if absent:
        raise InputError(file.label, [f"column {aliases[name]!r} (or {name!r}) is missing" for name in absent])
    for what, count in csv.losses().items():
        sink.drop(what, count, file, "kernels" if what == store.MISSHAPEN else "")
    rows = csv.frame.assign(**{name: csv.frame[alias] for name, alias in aliases.items() if name in csv.absent})
    if device is not None:
        rows = rows[(rows[DEVICE].isna() | (rows[DEVICE] == device)).astype(bool)].reset_index(drop=True)
    whole = {}
    for name in ("Wait Time(us)", "Step Id"):
        negative = (rows[name] < 0).fillna(False)
        sink.drop(f"{name}: negative", int(negative.sum()), file)
        whole[name] = rows[name].mask(negative)
    kernels = pd.DataFrame(
        {
            "rank": rank,
            "step": whole["Step Id"],
            "name": _each(rows[NAME], lambda name: _STACK.sub("", name)),  # MindSpore appends the stack to the name
            "type": rows["Type"],
            "core": rows["Accelerator Core"],
            "kind": kinds_of(rows),
            "stream": rows["Stream ID"],
            "start_ns": rows[START],
            "duration_ns": rows[DURATION],
            "wait_ns": whole["Wait Time(us)"],
            "input_shapes": _each(rows["Input Shapes"], lambda text: text.strip('"')),
            "input_dtypes": _each(rows["Input Data Types"], lambda text: text.strip('"')),
        }
    )
    named = kernels["name"].notna()
    sink.drop("kernels.name: value missing or negative", int((~named).sum()), file, "kernels")
    sound = sink.sound("kernels", kernels[named], file).reset_index(drop=True)
    return sound, csv.misshapen + len(kernels) - len(sound)


def kinds_of(rows: pd.DataFrame) -> pd.Series:
    """What each row is: computing, communication or copy, by its `Name`, `Type` and `Accelerator Core`."""
    kinds = np.zeros(len(rows), dtype=np.int8)
    for column in (NAME, "Type"):
        kinds[_holds(rows[column], lambda text: _COPY_NAME.match(text) is not None)] = 1
    kinds[_holds(rows[NAME], lambda name: name.startswith("hcom_"))] = 2
    kinds[rows["Accelerator Core"].isin(_COMMUNICATION_CORES).to_numpy(dtype=bool)] = 2
    return pd.Series(
        pd.Categorical.from_codes(kinds, categories=pd.Index(["computing", "copy", "communication"])), index=rows.index
    )


def _each(texts: pd.Series, change: Callable[[str], str]) -> pd.Series:
    """`change` of every text, called once a distinct one, because names and shapes repeat a thousandfold; null stays null."""
    labels = pd.Categorical(texts)
    changed = [change(text) for text in labels.categories.tolist()]
    place = {text: index for index, text in enumerate(dict.fromkeys(changed))}
    codes = np.array([*(place[text] for text in changed), -1])[labels.codes]
    return pd.Series(
        pd.Categorical.from_codes(codes, categories=pd.Index(list(place), dtype=None if place else "object")), index=texts.index
    )


def _holds(texts: pd.Series, test: Callable[[str], bool]) -> npt.NDArray[np.bool_]:
    """Whether `test` holds for every text, called once a distinct one; null does not."""
    labels = pd.Categorical(texts)
    held: npt.NDArray[np.bool_] = np.array([*map(test, labels.categories.tolist()), False], dtype=bool)[labels.codes]
    return held


def has_details(kernels: pd.DataFrame) -> bool:
    """Whether the profiler recorded operator types (level 1 and above) and not only names."""
    computing = kernels[kernels["kind"] == "computing"]
    return computing.empty or bool(computing["type"].notna().any())
