"""The device and the memory limit of a command, asked alike everywhere.

A device is a name, or a file with devices of one's own, by `--device` and `--hardware` alike.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.spec.hardware import HardwareSpec
from perfkit.face.cli import _roofline

OPTION = "--device"
FORM = "NAME|FILE.toml"


@dataclass(frozen=True, slots=True)
class Devices:
    """The devices of one's own by name, and the one that was chosen, if any."""

    own: Mapping[str, HardwareSpec]
    chosen: HardwareSpec | None


def add_device(parser: argparse.ArgumentParser, what: str = "the device, where the configuration names none") -> None:
    """Declare the option under both its spellings."""
    parser.add_argument(
        OPTION,
        "--hardware",
        dest="device",
        metavar=FORM,
        action="append",
        default=[],
        help=f"{what}; a file of your own devices has the form of data/hardware.toml and may stand beside a name",
    )


def add_limit(parser: argparse.ArgumentParser, whose: str = "a plan") -> None:
    """Declare the option of the memory limit, whose text `predict.limits.option_limit` reads."""
    what = f"what {whose} may fill (default: its own limit, else the device)"
    parser.add_argument("--memory-limit-gib", metavar="GIB", help=what)


def read_devices(given: Sequence[str], roofline: Sequence[str] | None = None) -> Devices:
    """What was given: files add their devices, a name chooses one of these or of the catalogue; the only one of a file is chosen.

    A name that nothing has is that of a device with the figures of `roofline`, if there are any; [] offers that they be given.
    Raises InputError for a file that cannot be read, a name that nothing has, and more than one name.
    """
    files = [word for word in given if word.lower().endswith(".toml") or Path(word).is_file()]
    names = list(dict.fromkeys(word for word in given if word not in files))
    own = {name: device for file in files for name, device in catalog.read_hardware(file).items()}
    if len(names) > 1:
        raise InputError(OPTION, [f"one device is needed, not {len(names)}: {', '.join(names)}"])
    if not names and roofline:
        raise InputError(_roofline.OPTION, ["of which device? Name it with --device"])
    if not names:
        return Devices(own, next(iter(own.values())) if len(own) == 1 else None)
    try:
        known = own.get(names[0]) or catalog.hardware_named(names[0])
    except InputError as error:
        if roofline:
            assumed = _roofline.roofline_device(names[0], roofline)
            return Devices({**own, assumed.name: assumed}, assumed)
        of_own = [f"{', '.join(files)} has {', '.join(own)}"] if own else []
        offered = [f"or give its data sheet's figures: {_roofline.EXAMPLE}"] if roofline is not None else []
        raise InputError(OPTION, [*error.problems, *of_own, *offered]) from error
    if roofline:
        raise InputError(_roofline.OPTION, [f"{known.name} is known; leave the figures out, or name another device"])
    return Devices(own, known)


def chosen_device(given: Sequence[str], roofline: Sequence[str] | None = None) -> HardwareSpec | None:
    """The device that was chosen; None if nothing was given. Raises InputError also where a file leaves the choice."""
    found = read_devices(given, roofline)
    if found.chosen is None and found.own:
        raise InputError(OPTION, [f"name one of the devices of the file beside it: {', '.join(found.own)}"])
    return found.chosen
