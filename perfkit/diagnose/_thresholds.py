"""All thresholds of the rules, with their unit and where they come from.

Origins: "guide" is a value that the tuning guides state, "chosen" one chosen for perfkit and held by the diagnosis benchmark. Every
one can be changed by the caller of `diagnose`.
"""

from __future__ import annotations

from perfkit.diagnose._rule import Threshold

HIGH_SHARE = Threshold(name="high-share", value=0.05, unit="share of the step", origin="chosen: severity high from here on")
MEDIUM_SHARE = Threshold(name="medium-share", value=0.01, unit="share of the step", origin="chosen: severity medium from here on")
LEAST_SHARE = Threshold(name="least-share", value=0.005, unit="share of the step", origin="chosen: less is not worth a finding")

SLOW_RANK_Z = Threshold(
    name="slow-rank-z", value=3.5, unit="robust standard deviations", origin="chosen: Iglewicz and Hoaglin (1993), outliers by MAD"
)
SLOW_RANK_STEP_Z = Threshold(name="slow-rank-step-z", value=2.0, unit="robust standard deviations", origin="chosen")
SLOW_RANK_PERSISTENCE = Threshold(name="slow-rank-persistence", value=0.7, unit="share of the steps", origin="chosen")
SLOW_RANK_EXCESS = Threshold(name="slow-rank-excess", value=0.02, unit="log ratio to the peers", origin="chosen")
SLOW_RANK_FLOOR = Threshold(
    name="slow-rank-floor", value=0.005, unit="log ratio to the peers", origin="chosen: natural spread of healthy cards is 0.3 %"
)
CLASSIC_EXCESS = Threshold(
    name="classic-excess",
    value=1.2,
    unit="ratio to the mean of all ranks",
    origin="MindInsight's parallel proposer; shown, never used",
)
