"""Thresholds that the engine or several rules share; one of a single rule stands with it, one of a helper with the helper.

Every one can be changed by the caller of `diagnose`.
"""

from __future__ import annotations

from perfkit.explain.diagnose.rule import Threshold

HIGH_SHARE = Threshold(name="high-share", value=0.05, unit="share of the step", origin="chosen: severity high from here on")
MEDIUM_SHARE = Threshold(name="medium-share", value=0.01, unit="share of the step", origin="chosen: severity medium from here on")
LEAST_SHARE = Threshold(name="least-share", value=0.005, unit="share of the step", origin="chosen: less is not worth a finding")
MIN_STEPS = Threshold(name="min-steps", value=3.0, unit="steps", origin="chosen: with fewer a cost is at most of medium severity")
REPEATED_BYTES = Threshold(name="repeated-bytes", value=2**20, unit="bytes", origin="chosen: less costs little")
