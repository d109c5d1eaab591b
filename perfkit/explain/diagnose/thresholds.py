"""All thresholds of the rules, with their unit and where they come from.

Origins: "guide" is a value that the tuning guides state, "chosen" one chosen for perfkit and held by the diagnosis benchmark. Every
one can be changed by the caller of `diagnose`.
"""

from __future__ import annotations

from perfkit.explain.diagnose.rule import Threshold

HIGH_SHARE = Threshold(name="high-share", value=0.05, unit="share of the step", origin="chosen: severity high from here on")
MEDIUM_SHARE = Threshold(name="medium-share", value=0.01, unit="share of the step", origin="chosen: severity medium from here on")
LEAST_SHARE = Threshold(name="least-share", value=0.005, unit="share of the step", origin="chosen: less is not worth a finding")

SLOW_RANK_Z = Threshold(
    name="slow-rank-z", value=3.5, unit="robust standard deviations", origin="chosen: Iglewicz and Hoaglin (1993), outliers by MAD"
)
SLOW_RANK_STEP_Z = Threshold(
    name="slow-rank-step-z",
    value=2.0,
    unit="robust standard deviations",
    origin="chosen: a step in which the rank is slow, less strict than for all together",
)
SLOW_RANK_PERSISTENCE = Threshold(
    name="slow-rank-persistence", value=0.7, unit="share of the steps", origin="chosen: what slows a rank now and then is jitter"
)
SLOW_RANK_EXCESS = Threshold(
    name="slow-rank-excess", value=0.02, unit="log ratio to the peers", origin="chosen: repeats of one job differ by as much"
)
SLOW_RANK_FLOOR = Threshold(
    name="slow-rank-floor", value=0.005, unit="log ratio to the peers", origin="chosen: natural spread of healthy cards is 0.3 %"
)
CLASSIC_EXCESS = Threshold(
    name="classic-excess",
    value=1.2,
    unit="ratio to the mean of all ranks",
    origin="MindInsight's parallel proposer; shown, never used",
)

FEED_SHARE = Threshold(name="feed-share", value=0.02, unit="share of the step", origin="chosen: shorter step intervals are normal")
FEED_LEAST = Threshold(
    name="feed-least", value=1e6, unit="ns a step", origin="chosen: an interval of a millisecond holds no wait for data"
)
PAUSE_SHARE = Threshold(name="pause-share", value=0.015, unit="share of the step", origin="chosen: a single idle time this long")
PAUSE_LEAST = Threshold(name="pause-least", value=2e6, unit="ns", origin="chosen: longer than any launch")
PAUSES_A_STEP = Threshold(name="pauses-a-step", value=2.0, unit="idle times a step", origin="chosen: more are no pause but a habit")
HOST_BOUND_SHARE = Threshold(
    name="host-bound-share",
    value=0.05,
    unit="share of the step",
    origin="chosen: devices that are fed well stay below",
)
HOST_BOUND_KERNELS = Threshold(
    name="host-bound-kernels", value=0.1, unit="share of kernels with an idle device before them", origin="chosen"
)
GAP_LEAST = Threshold(
    name="gap-least", value=2e3, unit="ns", origin="chosen: below this a queue feeds the device as fast as it can"
)
SYNC_CALLS = Threshold(
    name="sync-calls", value=4.0, unit="calls a step that wait for the device, its end left out", origin="chosen"
)
CASTS_SHARE = Threshold(name="casts-share", value=0.01, unit="share of computing", origin="chosen: norms and losses need less")
HOST_COPY_SHARE = Threshold(
    name="host-copy-share", value=0.02, unit="share of the step", origin="chosen: a batch and a loss need far less"
)
AI_CPU_SHARE = Threshold(
    name="ai-cpu-share",
    value=0.01,
    unit="share of the step",
    origin="chosen: less is not worth another form of the operator",
)
RECOMPUTE_SHARE = Threshold(
    name="recompute-share", value=0.01, unit="share of the step", origin="chosen: less saves less than a repeat differs"
)
SLOWER_RATIO = Threshold(name="slower-ratio", value=1.05, unit="ratio to the baseline", origin="chosen: repeats differ by 2 to 4 %")
OUTLIER_RATIO = Threshold(
    name="outlier-ratio",
    value=5.0,
    unit="ratio to the median of its own kind",
    origin="chosen: equal kernels differ by a few percent",
)
OUTLIER_SHARE = Threshold(
    name="outlier-share", value=0.01, unit="share of the step", origin="chosen: single slow executions cost little"
)
STAGE_LAYERS = Threshold(
    name="stage-layers", value=0.05, unit="work over the mean of the stages", origin="chosen: an even division is within it"
)
STAGE_CLASSIC = Threshold(
    name="stage-classic",
    value=0.2,
    unit="computing over the mean of the stages",
    origin="MindInsight; where operators are not recorded",
)
BUBBLE_RATIO = Threshold(
    name="bubble-ratio",
    value=1.3,
    unit="bubble over what the schedule must have",
    origin="chosen: stages that differ by their head and embedding stay below",
)
SMALL_MESSAGE = Threshold(name="small-message", value=4 * 2**20, unit="bytes", origin="chosen; 1 MiB is certainly small")
LATENCY_SHARE = Threshold(
    name="latency-share",
    value=0.3,
    unit="share of the time of a message",
    origin="chosen: from here on fewer messages win more than faster links",
)
SMALL_COUNT = Threshold(
    name="small-count",
    value=16.0,
    unit="small messages a rank and step",
    origin="chosen: a few small messages a step, such as norms and losses, are normal",
)
EXPOSED_SHARE = Threshold(name="exposed-share", value=0.10, unit="share of the step", origin="MindInsight: 10 %")
LATE_SHARE = Threshold(
    name="late-share", value=0.005, unit="share of the step", origin="chosen: gradients sent after all computing"
)
HIDDEN_RATIO = Threshold(
    name="hidden-ratio", value=0.3, unit="share of the communication", origin="chosen: software that hides gradients hides more"
)
LINK_RATIO = Threshold(
    name="link-ratio", value=1.25, unit="time a byte over that of like links", origin="chosen: 0.8 of the bandwidth"
)
LINK_Z = Threshold(
    name="link-z", value=3.5, unit="robust standard deviations", origin="chosen: Iglewicz and Hoaglin (1993), outliers by MAD"
)
LINK_PERSISTENCE = Threshold(
    name="link-persistence", value=0.7, unit="share of the steps", origin="chosen: what slows a link now and then is other traffic"
)
LINK_PEERS = Threshold(name="link-peers", value=4.0, unit="like links", origin="chosen: fewer have no robust middle")
SKEW_LEAST = Threshold(name="skew-least", value=20e3, unit="ns", origin="chosen: less moves no conclusion")
SKEW_SIGMAS = Threshold(name="skew-sigmas", value=5.0, unit="standard errors", origin="chosen: many ranks are compared at once")
FRAGMENTED_RATIO = Threshold(
    name="fragmented-ratio",
    value=1.3,
    unit="reserved over allocated",
    origin="chosen: allocators that grow in blocks reserve a tenth more",
)
FRAGMENTS_SHARE = Threshold(
    name="fragments-share", value=0.05, unit="share of the memory budget", origin="chosen: less does not decide whether a job fits"
)
JITTER_SPREAD = Threshold(
    name="jitter-spread", value=0.04, unit="robust spread of equal kernels, log ratio", origin="chosen: healthy 0.012"
)
BUBBLE_EXCESS = Threshold(name="bubble-excess", value=0.02, unit="share of the step", origin="chosen: less is noise of the stages")
EXPERT_LOAD = Threshold(
    name="expert-load", value=1.2, unit="expert time over the mean of the peers", origin="chosen; balancing losses keep 1.1"
)
SHAPES_SHARE = Threshold(
    name="shapes-share", value=0.05, unit="share of computing", origin="chosen: static graphs repeat every shape in every step"
)
MIN_STEPS = Threshold(name="min-steps", value=3.0, unit="steps", origin="chosen: with fewer a cost is at most of medium severity")
OUT_OF_MEMORY_STATIC = Threshold(
    name="oom-static-share",
    value=0.6,
    unit="static memory over the budget",
    origin="chosen: from here on activations are not the cause",
)
HELD_RATIO = Threshold(
    name="held-ratio", value=1.15, unit="live peak over the peak in use", origin="chosen: rounding of blocks explains less"
)
FUSION_SHARE = Threshold(
    name="fusion-share", value=0.01, unit="share of the step", origin="chosen: what one kernel for each chain would win"
)
HOT_OPERATOR_SHARE = Threshold(
    name="hot-operator-share", value=0.01, unit="share of the step", origin="chosen: operators that matter"
)
EFFICIENCY_LOW = Threshold(
    name="efficiency-low", value=0.3, unit="share of the peak of the device", origin="chosen: large products reach 50 to 80 %"
)
EFFICIENCY_FLOPS = Threshold(
    name="efficiency-flops", value=1e9, unit="FLOP", origin="chosen: smaller products cannot fill a device"
)
INEFFICIENT_SHARE = Threshold(
    name="inefficient-share", value=0.05, unit="share of computing", origin="chosen: operators that matter"
)
TAIL_SHARE = Threshold(
    name="tail-share", value=0.10, unit="share of the step", origin="chosen: a last bucket and a fused optimizer take less"
)
TAIL_PART = Threshold(name="tail-part", value=0.5, unit="share of the tail", origin="chosen: what most of the tail is made of")
BANDWIDTH_RATIO = Threshold(
    name="bandwidth-ratio",
    value=1 / 3,
    unit="share of what the link states",
    origin="chosen: good runs reach 0.4 to 0.8",
)
BANDWIDTH_BYTES = Threshold(
    name="bandwidth-bytes", value=32 * 2**20, unit="bytes", origin="chosen: from here on latency hardly counts"
)
BANDWIDTH_COUNT = Threshold(name="bandwidth-count", value=4.0, unit="large messages", origin="chosen: single ones show nothing")
GROWTH_SHARE = Threshold(
    name="growth-share", value=0.01, unit="of the peak a step", origin="chosen: memory that is never given back"
)
CHURN_CALLS = Threshold(
    name="churn-calls", value=4.0, unit="times a step that memory goes back to the device", origin="chosen: once a step is common"
)
HEADROOM = Threshold(name="headroom", value=0.9, unit="peak over what may be used", origin="chosen: above it little is left to use")
LONG_STEP = Threshold(name="long-step", value=3.0, unit="median steps", origin="chosen: checkpoints and the like")
OVERHEAD_SHARE = Threshold(
    name="overhead-share", value=0.05, unit="share of the step", origin="chosen: from here on figures of a recording mislead"
)
CONTENTION_SHARE = Threshold(
    name="contention-share", value=0.01, unit="share of the step idle in held-up launches", origin="chosen"
)
HELD_UP_RATIO = Threshold(
    name="held-up-ratio",
    value=20.0,
    unit="median duration of the same call",
    origin="chosen: a cold cache costs some times the usual",
)
HELD_UP_LEAST = Threshold(name="held-up-least", value=1e5, unit="ns", origin="chosen: a slice of a scheduler is some ms")
CORE_IDLE_SHARE = Threshold(
    name="core-idle-share", value=0.02, unit="share of the step", origin="chosen: switches between streams take less"
)
CORE_IDLE_LEAST = Threshold(name="core-idle-least", value=2e4, unit="ns", origin="chosen: longer than a switch between streams")
HFU_LOW = Threshold(
    name="hfu-low",
    value=0.2,
    unit="share of the peak of the device",
    origin="chosen; guides call 0.5 good, small models in a pipeline reach 0.3",
)
LINEARITY_LOW = Threshold(
    name="linearity-low", value=0.8, unit="throughput kept when growing", origin="guide: 0.8 and more is good"
)
REPEATED_BYTES = Threshold(name="repeated-bytes", value=2**20, unit="bytes", origin="chosen: less costs little")
REPEATED_COUNT = Threshold(name="repeated-count", value=4.0, unit="times a rank and step", origin="chosen: a habit, no accident")
