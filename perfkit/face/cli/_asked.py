"""The plans that a command is asked about: configurations on a device and under a limit that stand beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from perfkit.core.errors import Problems
from perfkit.core.spec.hardware import HardwareSpec
from perfkit.core.spec.plan import Plan
from perfkit.face.cli._devices import OPTION, chosen_device
from perfkit.predict.limits import option_limit, with_limit
from perfkit.predict.reading import completed, read_config

Read = Callable[[str], Plan]


def asked_plan(
    path: str, given: Sequence[str], limit: str | None = None, read: Read = read_config, others: Sequence[str] = ()
) -> Plan:
    """The one plan of `asked_plans`."""
    return asked_plans(path, [path], given, limit, read=read, others=others)[0]


def asked_plans(
    subject: str,
    paths: Sequence[str],
    given: Sequence[str],
    limit: str | None = None,
    *,
    roofline: Sequence[str] | None = None,
    read: Read = read_config,
    others: Sequence[str] = (),
) -> list[Plan]:
    """The configurations at `paths`, on the device that is `given` where they name none, under the `limit` if it is given.

    Raises InputError that lists what is wrong with all of them, with both options, and with `others`.
    """
    problems, device = Problems(), None
    with problems.of(OPTION):
        device = chosen_device(given, roofline)
    plans: list[Plan] = []
    for path in paths:
        with problems.of("" if path == subject else path):
            plan = read(path)
            plans.append(replace(plan, hardware=plan.hardware or device))
    found: dict[HardwareSpec | None, tuple[int | None, str]] = {}
    for hardware in {plan.hardware: None for plan in plans} or {device: None}:
        with problems.of():
            found[hardware] = option_limit(limit, hardware)
    if problems and not given and any(plan.hardware is None for plan in plans):
        problems.append('hardware is not named, for example "Ascend-910B2"')
    problems += others if problems else ()  # else told by what is asked, with all that it finds
    problems.tell(subject)
    return [completed(with_limit(plan, *found[plan.hardware])) for plan in plans]
