"""The devices do little of the work that they could do in the time of a step.

What is measured: operations a second of a device (HFU: recomputation counted), by the plan of the run, as its log prints them, or
by the shapes of its products and attention where nearly all are known, over the dense peak of the device in 16 bits. Where the
name of a profiler fits several devices the lowest peak counts. A low value is no cause by itself: other findings say where the time
goes, and costs are stated there.

What to do: work through the other findings by their cost; without any, compare strategies, because the model is small for so many
devices.
"""

from __future__ import annotations

from perfkit.core.errors import NotMeasuredError
from perfkit.core.texts import say
from perfkit.explain.diagnose import use
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import SHAPES_BY
from perfkit.explain.diagnose.rule import Finding, Rule, Threshold, Verdict

HFU_LOW = Threshold(
    name="hfu-low",
    value=0.2,
    unit="share of the peak of the device",
    origin="chosen: guides call 0.5 good, small models in a pipeline reach 0.3; the bundled log has 0.23",
)

GOOD = 0.5
"""By the guides."""
ACTIONS = (
    "work through the findings that cost time, the largest first",
    "compare strategies with less communication and larger micro batches (page 03)",
)


def check(case: Case) -> Verdict:
    """Operations a second over the peak."""
    peaks = use.peaks(case)
    if peaks is None:
        raise NotMeasuredError("the peak of the device", how_to_collect=SHAPES_BY)
    rate = use.flops_per_s(case)
    if rate is None:
        raise NotMeasuredError("operations of a step", how_to_collect=SHAPES_BY)
    hfu = rate[0] / peaks[0]
    evidence = {"hfu": hfu, "device_flops_per_s": rate[0], "peak_flops_per_s": peaks[0], "good_hfu": GOOD}
    if hfu >= case.limit(HFU_LOW):
        return Verdict((), evidence)
    finding = Finding(
        rule=RULE.name,
        title=say(
            "A device does {device_flops_per_s} of {peak_flops_per_s} (HFU {hfu}, by its {source})", source=rate[1], **evidence
        ),
        subject={},
        evidence=evidence,
        actions=ACTIONS,
        severity="low",
        next=("02_model_cost", "03_parallel_strategy"),
    )
    return Verdict((finding,), evidence)


RULE = Rule("hfu-low", "Little of the peak is used", frozenset({"steps"}), SHAPES_BY, (HFU_LOW,), check)
