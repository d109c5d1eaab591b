"""The command `estimate` with a short profile: what a recording of a scaled-down model says about the whole one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TextIO

from perfkit.core.errors import InputError
from perfkit.core.spec.plan import Plan
from perfkit.core.texts import told
from perfkit.explain.compare.extrapolate import extrapolate
from perfkit.face.cli._document import print_document
from perfkit.face.cli._estimates import print_estimate
from perfkit.face.cli._screen import say
from perfkit.predict.calibration.file import Calibration
from perfkit.record.load import load


def estimate_profiled(
    paths: Sequence[str],
    plans: Sequence[Plan],
    recording: str | None,
    calibration: str | Calibration | None,
    out: TextIO,
    *,
    as_json: bool = False,
) -> None:
    """Predict every plan but the last, which is that of the recording, and print it.

    Raises InputError where one of the two is missing, and with every reason why the recording says nothing about a configuration.
    """
    if not recording or len(plans) < 2:
        raise InputError("estimate", ["--profile and --profiled-plan need one another: a recording, and the configuration of it"])
    run, profiled = load(recording), plans[-1]
    for path, plan in zip(paths, plans[:-1], strict=True):
        found = extrapolate(run, profiled, plan, calibration=calibration)
        if as_json:
            times = {"step_time_s": found.measured_s, "predicted_s": found.predicted_s, "without_it_s": found.plain.step_time_s}
            parts = {"factors": [asdict(one) for one in found.factors], "not_recorded": list(found.not_recorded)}
            print_document(found.estimate.to_dict() | {"profile": times | parts}, out)
            continue
        print_estimate(path, found.estimate, out)
        say(out)
        for sentence in found.told():
            say(out, told(sentence))
