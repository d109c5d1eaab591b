"""Few rows: what one to nine measured steps of one's own say of all other plans there.

A hierarchical model of the logarithm of measured over predicted time: what the runs of one place (its devices, software and models)
have in common lies around the calibration with the deviation `spread.source`, and a run around that with `spread.row`. Both are
the calibration's, from the sources of the reference; a device that it does not know widens the first. The common part
after n rows is their median, drawn towards the calibration as in a normal model with known deviations, and the interval is that of
a run that was not measured. So one odd run does not mislead, and five that agree are believed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from perfkit.predict.calibration._measured import Measured
from perfkit.predict.calibration.file import Calibration, calibration

TENTH = 1.2816
"""Deviations of a normal distribution beyond which a tenth lies."""


def updated(rows: Measured, start: Calibration, *, name: str = "own", origin: str = "") -> Calibration:
    """The calibration after a few measured steps: all times longer by one factor, and the interval that is left."""
    spread = start.spread or calibration("default").spread
    unknown = not start.knows(rows.labels).all()
    doubted = start.doubt.get("device", 0.0) ** 2 if unknown else 0.0
    common, alone, count = spread["source"] ** 2 + doubted, spread["row"] ** 2, len(rows.seconds)
    trust = count * common / (count * common + alone)
    found = -np.log(rows.ratios(start))
    moved = trust * float(np.median(found))
    centre = (1.0 - trust) * float(np.log(start.interval).mean())
    half = TENTH * float(np.sqrt((1.0 - trust) * common + alone))
    return replace(
        start.slower(float(np.exp(moved))),
        name=name,
        origin=origin,
        points=count,
        error=float(np.mean(np.abs(np.expm1(moved - found)))),
        interval=(float(np.exp(centre - half)), float(np.exp(centre + half))),
        doubt={kind: amount for kind, amount in start.doubt.items() if not (unknown and kind == "device")},
        spread=spread,
    )
