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
LEAST_SHARE = Threshold("least-share", 0.005, "share of the step", "chosen: half of what two runs can differ by without a cause")
MIN_STEPS = Threshold("min-steps", 3.0, "steps", "chosen: two steps have no middle, and one of three may be odd")
REPEATED_BYTES = Threshold("repeated-bytes", 2**20, "bytes", "chosen: 1 MiB takes 0.1 ms at 10 GB/s")
