"""Hardware of the plans of a table: the rates of every row's device from the catalogue, its network from what the row states."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

import numpy as np

from perfkit.core.plan_columns import Flags, Floats
from perfkit.core.spec.hardware import HardwareSpec
from perfkit.predict.cost._table_cells import Cells, filled, said
from perfkit.predict.cost.units import compute_units, is_mesh

DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp8": "float8"}
DTYPES |= {name: name for name in DTYPES.values()}
ELEMENT_BYTES = {
    "bfloat16": 2.0,
    "float16": 2.0,
    "float32": 4.0,
    "float8": 2.0,
}  # activations stay in 16 bits beside 8-bit products
USUAL = "bfloat16"

_LINKS = re.compile(r"(?:(\d{1,4})\s*x\s*)?(\d{1,6})\s*Gb/s per node")


def read_hardware(
    cells: Cells, devices: Mapping[str, HardwareSpec], stated_per_node: Floats, nodes_needed: Floats
) -> dict[str, Floats | Flags]:
    """Columns of `CostColumns` that describe the device; an unknown device, dtype or link is a problem of the row.

    `stated_per_node` are devices a node (nan: as in the catalogue), `nodes_needed` the devices of the job.
    """
    codes, names = cells.words("accelerator")
    kinds, precisions = cells.words("precision")
    specs = _find(cells, devices)
    peaks = np.ones((len(names), len(precisions)))
    rates = np.ones((len(names), 7))
    for code, spec in enumerate(specs):
        if spec is None:
            continue
        rates[code] = _rates(spec)
        for kind, precision in enumerate(precisions):
            rows = (codes == code) & (kinds == kind)
            if rows.any():
                peaks[code, kind] = _peak(cells, spec, precision, rows)
    memory, intra, inter, per_node, units, mesh, host = rates[codes].T
    per_node = np.maximum(filled(stated_per_node, per_node), 1.0)
    stated = _stated_network(cells)
    node = filled(stated, inter * per_node)
    cells.problem(
        (nodes_needed > per_node) & ~(node > 0),
        lambda i: (
            f"accelerator = {names[codes[i]]!r}: the catalogue knows no link between nodes, which {nodes_needed[i]:g} devices need"
        ),
    )
    cells.problem(
        (nodes_needed > 1) & ~(intra > 0),
        lambda i: (
            f"accelerator = {names[codes[i]]!r}: the catalogue knows no link inside a node, which {nodes_needed[i]:g} devices need"
        ),
    )
    element = np.array([ELEMENT_BYTES.get(DTYPES.get(word.lower(), USUAL), 2.0) for word in precisions])
    return {
        "peak_flops_per_s": peaks[codes, kinds],
        "memory_bytes_per_s": memory,
        "intra_bytes_per_s": np.where(intra > 0, intra, 1.0),
        "node_bytes_per_s": np.where(node > 0, node, 1.0),
        "host_bytes_per_s": np.where(host > 0, host, 1.0),
        "devices_per_node": per_node,
        "compute_units": units,
        "mesh": mesh > 0,
        "element_bytes": element[kinds],
        "eight_bit": cells.flags("precision", lambda word: DTYPES.get(word.lower()) == "float8"),
    }


def _find(cells: Cells, devices: Mapping[str, HardwareSpec]) -> list[HardwareSpec | None]:
    """The device of every word of the column; case, `_`, `-` and spaces do not matter."""
    codes, names = cells.words("accelerator")
    plain = {_plain(name): spec for name, spec in devices.items()}
    found = [plain.get(_plain(name)) for name in names]
    for code, (name, spec) in enumerate(zip(names, found, strict=True)):
        if spec is None:
            near = difflib.get_close_matches(name, devices, n=3, cutoff=0.4)
            hint = f"nearest are {', '.join(near)}" if near else f"known are {', '.join(devices)}"
            text = f"accelerator = {name!r} is not in the catalogue; {hint}" if name else "accelerator is not stated"
            cells.problem(codes == code, said(text))
    return found


def _rates(spec: HardwareSpec) -> tuple[float, ...]:
    """Bytes/s of memory, of the links in a node and to the network (0: unknown), devices a node, units, mesh, link to the host."""
    links = {name: link.bytes_per_s for name, link in spec.links.items()}
    return (
        spec.memory_bytes_per_s,
        links.get("intra_node", 0.0),
        links.get("inter_node", 0.0),
        spec.devices_per_node,
        compute_units(spec.name),
        float(is_mesh(spec)),
        links.get("host", 0.0),
    )


def _peak(cells: Cells, spec: HardwareSpec, precision: str, rows: Flags) -> float:
    """The device's peak for a precision; one that it does not have is a problem of the rows, none stated the usual one."""
    known = spec.peak_flops_per_s
    if not precision:
        dtype = USUAL if USUAL in known else next(iter(known))
        cells.assume(rows, said(f"precision = {dtype}"))
        return known[dtype]
    dtype = DTYPES.get(precision.lower(), "")
    if dtype in known:
        return known[dtype]
    cells.problem(rows, said(f"precision = {precision!r}: {spec.name} has peaks for {', '.join(known)} only"))
    return 1.0


def _stated_network(cells: Cells) -> Floats:
    """Bytes/s of a node's network where the row's note states it, such as "4x200 Gb/s per node"; nan elsewhere."""
    codes, notes = cells.words("note")
    rates = np.full(len(notes), np.nan)
    for code, note in enumerate(notes):
        if match := _LINKS.search(note):
            rates[code] = int(match[1] or 1) * int(match[2]) * 1e9 / 8
    return np.where(rates[codes] > 0, rates[codes], np.nan)


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", "-", name.strip().lower())
