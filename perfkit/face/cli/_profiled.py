"""The command `estimate` with a short profile: what a recording of a scaled-down model says about the whole one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TextIO

from perfkit.config.dialects import read_config
from perfkit.core.errors import InputError
from perfkit.core.spec.plan import Plan
from perfkit.explain.compare.extrapolate import extrapolate
from perfkit.face.cli._devices import Devices
from perfkit.face.cli._document import print_document
from perfkit.face.cli._estimates import print_estimate
from perfkit.face.cli._screen import say
from perfkit.predict.calibration.file import Calibration
from perfkit.predict.limits import with_limit_gib
from perfkit.record.load import load


def estimate_profiled(
    paths: Sequence[str],
    profile: tuple[str | None, str | None],
    devices: Devices,
    calibration: str | Calibration | None,
    out: TextIO,
    *,
    limit_gib: float | None = None,
    as_json: bool = False,
) -> None:
    """Predict every configuration from a recording and its plan (`profile`), and print it.

    Raises InputError where one of the two is missing, and with every reason why the recording says nothing about a configuration.
    """
    recording, small = profile
    if not recording or not small:
        raise InputError("estimate", ["--profile and --profiled-plan need one another: a recording, and the configuration of it"])

    def plan_of(path: str) -> Plan:
        plan = read_config(path)
        return with_limit_gib(replace(plan, hardware=plan.hardware or devices.chosen), limit_gib)

    run, profiled = load(recording), plan_of(small)
    for path in paths:
        found = extrapolate(run, profiled, plan_of(path), calibration=calibration)
        if as_json:
            told = {"step_time_s": found.measured_s, "predicted_s": found.predicted_s, "without_it_s": found.plain.step_time_s}
            parts = {"factors": [asdict(one) for one in found.factors], "not_recorded": list(found.not_recorded)}
            print_document(found.estimate.to_dict() | {"profile": told | parts}, out)
            continue
        print_estimate(path, found.estimate, out)
        say(out)
        for sentence in found.told():
            say(out, sentence)
