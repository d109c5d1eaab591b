"""Steps wait for data: the device has nothing to do before the first operator of a step.

What is measured: the time before the first device operator of each step (the step interval), by rank. It is a finding where the
mean over steps is at least 2 % of the step and a millisecond, and then names the ranks whose interval is long. Ranks that wait
for those in their first collective are not named. An input that is slow every n-th step counts with its mean.

What to do: more workers for the dataset, a larger prefetch, faster storage, cheaper transformations; code between iterator and
network belongs into the dataset. The sizes of the dataset's queues tell whether preparing or sending the data is slow; a profiler
without them can only say that the step waits.
"""

from __future__ import annotations

import pandas as pd

from perfkit.diagnose import _host, _work
from perfkit.diagnose._case import KERNELS_BY, Case
from perfkit.diagnose._rule import Finding, Rule, Verdict
from perfkit.diagnose._thresholds import FEED_LEAST, FEED_SHARE

ACTIONS = (
    "raise the workers and the prefetch of the dataset (num_parallel_workers, num_workers, prefetch_size)",
    "move code between iterator and network into the dataset, and cache what does not change",
    "check storage and the load of the host of the named ranks",
)


def check(case: Case) -> Verdict:
    """Ranks whose device idles at the start of steps."""
    leads = case.gaps[case.gaps["lead"].astype(bool)]
    table = leads.pivot_table(index="rank", columns="step", values="duration_ns", aggfunc="sum").fillna(0.0)
    step_ns = case.step_ns or 1
    means = table.mean(axis=1)
    evidence = {
        "largest_interval_ns": float(means.max()) if len(means) else 0.0,
        "largest_interval_share": float(means.max() / step_ns) if len(means) else 0.0,
    }
    bar_ns = max(case.limit(FEED_SHARE) * step_ns, case.limit(FEED_LEAST))
    if means.empty or means.max() < bar_ns:
        return Verdict((), evidence)
    named = tuple(int(rank) for rank in means.index[(means >= max(bar_ns, 0.5 * means.max())).to_numpy()])
    others = table[~table.index.isin(named)]
    usual_ns = float(others.to_numpy().mean()) if len(others) else _usual_ns(table, bar_ns)
    late = leads[leads["rank"].isin(named) & (leads["duration_ns"] > usual_ns)]
    cost_ns = _work.won_ns(case, late, fraction=1.0 - usual_ns / late["duration_ns"].astype("float64"))
    longest = float(table.loc[list(named)].to_numpy().max())
    loaders = _host.share_in(case, named[0], leads, _host.LOADERS)
    who = (
        "All ranks wait"
        if len(named) == len(means)
        else f"Ranks {', '.join(map(str, named))} wait"
        if len(named) > 1
        else f"Rank {named[0]} waits"
    )
    return Verdict(
        (
            Finding(
                rule=RULE.name,
                title=f"{who} {means.loc[list(named)].mean() / 1e6:.1f} ms for data at the start of a step",
                subject={"ranks": named},
                evidence={
                    **evidence,
                    "usual_interval_ns": usual_ns,
                    "longest_interval_ns": longest,
                    "steps_with_long_interval": float((table.loc[list(named)].max() >= bar_ns).sum()),
                    **({} if loaders is None else {"share_in_data_loader": loaders}),
                },
                actions=ACTIONS,
                cost_ns=cost_ns,
                next=("16_data_feed",),
            ),
        ),
        evidence,
    )


def _usual_ns(table: pd.DataFrame, bar_ns: float) -> float:
    """The interval of steps without delay, where some are: then the delay comes only every few steps."""
    fewest = table.max(axis=0).min()
    return float(fewest) if fewest < bar_ns else 0.0


RULE = Rule(
    name="data-feed",
    title="Steps wait for data",
    needs=frozenset({"steps", "kernels"}),
    how_to_collect=KERNELS_BY,
    thresholds=(FEED_SHARE, FEED_LEAST),
    check=check,
    explains=frozenset({"jitter", "host-pause"}),
)
