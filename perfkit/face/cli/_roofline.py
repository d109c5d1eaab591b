"""A device that the catalogue lacks, by the few figures of its data sheet (`--assume-roofline`)."""

from __future__ import annotations

from collections.abc import Sequence

from perfkit.core.errors import InputError
from perfkit.core.source import Source
from perfkit.core.spec.hardware import HardwareSpec, Link
from perfkit.core.units import GIB

OPTION = "--assume-roofline"
NEEDED = ("tflops", "memory_gib", "memory_tb_s")
OTHERS = ("tflops_8bit", "link_gb_s", "network_gb_s", "devices_per_node")
EXAMPLE = f"{OPTION} tflops=400 memory_gib=64 memory_tb_s=1.6 link_gb_s=200 network_gb_s=25"


def roofline_device(name: str, given: Sequence[str]) -> HardwareSpec:
    """The device of that name with the peak in 16 bits, memory and links that were given as KEY=NUMBER.

    No efficiency is known of it, so that a prediction's interval is as wide as devices differ. Raises InputError with everything
    that is missing, unknown or no number above 0.
    """
    figures, problems = _figures(given)
    stated = {word.partition("=")[0] for word in given}
    problems += [f"{key} is not stated" for key in NEEDED if key not in stated]
    if problems:
        raise InputError(OPTION, [*problems, f"known are {', '.join((*NEEDED, *OTHERS))}; for example {EXAMPLE}"])
    peaks = dict.fromkeys(("bfloat16", "float16"), 1e12 * figures["tflops"])
    if "tflops_8bit" in figures:
        peaks["float8"] = 1e12 * figures["tflops_8bit"]
    links = {"intra_node": "link_gb_s", "inter_node": "network_gb_s"}
    return HardwareSpec(
        name=name,
        peak_flops_per_s=peaks,
        memory_bytes=round(figures["memory_gib"] * GIB),
        memory_bytes_per_s=1e12 * figures["memory_tb_s"],
        links={link: Link(name=link, bytes_per_s=1e9 * figures[key]) for link, key in links.items() if key in figures},
        devices_per_node=round(figures.get("devices_per_node", 8.0)),
        sources={
            field: Source("assumed", OPTION, "as given") for field in ("peak_flops_per_s", "memory_bytes", "memory_bytes_per_s")
        },
    )


def _figures(given: Sequence[str]) -> tuple[dict[str, float], list[str]]:
    figures: dict[str, float] = {}
    problems: list[str] = []
    for word in given:
        key, _, text = word.partition("=")
        if key not in (*NEEDED, *OTHERS):
            problems.append(f"{word!r} is none of its figures")
            continue
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if 0 < value < 1e9:
            figures[key] = value
        else:
            problems.append(f"{key} = {text!r} must be a number above 0")
    return figures, problems
