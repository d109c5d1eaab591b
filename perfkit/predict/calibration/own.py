"""A calibration of one's own: measured collectives, products and steps of a cluster over a bundled calibration.

What each kind of file speaks about is taken from it, the rest stays as it was: collectives give the shares and latencies of links,
products those of the matrix units. Fewer than ten steps move all times by one factor (`few_rows`), more give what `calibrate` fits
to them, held near what the others said.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import pandas as pd

from perfkit.core.errors import InputError
from perfkit.core.spec.hardware import HardwareSpec
from perfkit.predict.calibration._measured import Measured, read_measured
from perfkit.predict.calibration.few_rows import updated
from perfkit.predict.calibration.file import Calibration, calibration
from perfkit.predict.calibration.fit import ROWS_EACH, calibrate
from perfkit.predict.calibration.link_rates import fit_links, is_link_rates, read_link_rates
from perfkit.predict.calibration.operator_rates import COLUMNS, fit_products
from perfkit.predict.cost.labels import Label

KINDS = "collectives (nccl-tests, hccl_test, a table), products (a table with shape and share_of_peak) and measured steps (a table)"


@dataclass(frozen=True, slots=True)
class Measurement:
    """One efficiency that measurements give: its name, what it was, what it is, the file, and the error which that leaves there."""

    name: str
    before: float
    after: float
    file: str
    error: float


def calibrate_with(
    texts: Mapping[str, str],
    device: HardwareSpec,
    *,
    base: Calibration | None = None,
    operation: str = "",
    num_ranks: int = 0,
    num_nodes: int = 0,
) -> tuple[Calibration, tuple[Measurement, ...]]:
    """The calibration of `device` by the texts of some files, by their names, and what they change.

    `operation`, `num_ranks` and `num_nodes` say of collectives what their file does not. Raises InputError with what no file says,
    and with every rate that the device cannot reach.
    """
    start = base or calibration("default")
    links = {name: text for name, text in texts.items() if is_link_rates(text)}
    tables = {name: _table(name, text) for name, text in texts.items() if name not in links}
    products = {name: table for name, table in tables.items() if set(COLUMNS) <= set(table)}
    steps = {name: table for name, table in tables.items() if name not in products}
    found: dict[str, tuple[float, str, float]] = {}
    for name, text in links.items():
        timings = read_link_rates(text, name, operation=operation, num_ranks=num_ranks, num_nodes=num_nodes)
        found |= _said(fit_links(timings, device, name), name)
    for name, table in products.items():
        found |= _said(fit_products(table, device), name)
    own, changes = _with(start, found, device, known=bool(products))
    origin = f"{', '.join(texts)} on {device.name}, over {start.name}"
    own = replace(own, name=device.name, origin=origin)
    if steps:
        rows = read_measured(pd.concat(steps.values(), ignore_index=True))
        _same_device(rows, device, ", ".join(steps))
        few = len(rows.seconds) < ROWS_EACH
        own = (updated if few else _fitted)(rows, own, name=device.name, origin=origin)
        changes += tuple(
            Measurement(path, before, after, ", ".join(steps), own.error) for path, before, after in _changed(start, own, changes)
        )
    return own, changes


def _fitted(rows: Measured, base: Calibration, *, name: str, origin: str) -> Calibration:
    return calibrate(rows, name=name, origin=origin, base=base)


def _same_device(rows: Measured, device: HardwareSpec, files: str) -> None:
    """Raises InputError for steps that were measured on another device, which say nothing of this one."""
    others = sorted({label.accelerator for label in rows.labels.values} - {device.name, ""})
    if others:
        raise InputError(files, [f"accelerator = {other} is not {device.name}, the device to calibrate" for other in others])


def _table(name: str, text: str) -> pd.DataFrame:
    try:
        table = pd.read_csv(io.StringIO(text))
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise InputError(name, [f"{error}; known are {KINDS}"]) from error
    if not {*COLUMNS, "step_time_s", "tokens_per_s_per_device"} & set(table):
        raise InputError(name, [f"columns {', '.join(map(str, table.columns[:8]))}: known are {KINDS}"])
    return table


def _said(fitted: Mapping[str, float], file: str) -> dict[str, tuple[float, str, float]]:
    return {name: (value, file, fitted["error"]) for name, value in fitted.items() if name != "error"}


def _with(
    start: Calibration, found: Mapping[str, tuple[float, str, float]], device: HardwareSpec, *, known: bool
) -> tuple[Calibration, tuple[Measurement, ...]]:
    """The calibration with the found numbers for the device, which only measured products make a known one."""
    stated = {key.partition("/")[0] for group in ("accelerator", "setup") for key in start.groups.get(group, {})}
    known = known or device.name.startswith(tuple(stated))
    where = f"setup.{device.name}" if known else "common"
    changes = tuple(
        Measurement(name, start.value(start.path(Label(accelerator=device.name), name)), value, file, error)
        for name, (value, file, error) in found.items()
    )
    return start.with_values({f"{where}.{change.name}": change.after for change in changes}), changes


def _changed(start: Calibration, own: Calibration, known: Iterable[Measurement]) -> list[tuple[str, float, float]]:
    """What a fit to steps changed besides: path, before, after."""
    told = {change.name for change in known}
    paths = {f"common.{name}": value for name, value in own.common.items()}
    for group, members in own.groups.items():
        paths |= {f"{group}.{key}.{name}": value for key, values in members.items() for name, value in values.items()}
    return [
        (path, start.value(path), value)
        for path, value in paths.items()
        if path.rpartition(".")[2] not in told and start.value(path) != value
    ]
