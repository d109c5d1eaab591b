"""Thresholds that the engine or several rules share; one of a single rule stands with it, one of a helper with the helper.

Every one can be changed by the caller of `diagnose`.
"""

from __future__ import annotations

from perfkit.explain.diagnose.rule import Threshold

HIGH_SHARE = Threshold(
    name="high-share",
    value=0.05,
    unit="share of the step",
    origin="chosen: five times what is medium; a goal of 5 % more throughput is met by one such finding",
)
MEDIUM_SHARE = Threshold(
    name="medium-share",
    value=0.01,
    unit="share of the step",
    origin="chosen: repeats of one job differ by up to 1 %, so less cannot be seen in one more run",
)
LEAST_SHARE = Threshold(
    name="least-share", value=0.005, unit="share of the step", origin="chosen: half of what two runs can differ by without a cause"
)
MIN_STEPS = Threshold(
    name="min-steps", value=3.0, unit="steps", origin="chosen: two steps have no middle, and one of three may be odd"
)
REPEATED_BYTES = Threshold(
    name="repeated-bytes",
    value=2**20,
    unit="bytes",
    origin="chosen: 1 MiB takes 0.1 ms at 10 GB/s",
)
