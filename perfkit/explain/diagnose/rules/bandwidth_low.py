"""Large messages move much slower than the links of the device can, on all of its links of that kind.

What is measured: bus bandwidth (nccl-tests) of all-reduce, all-gather, reduce-scatter and all-to-all of at least 32 MiB, the median
of those inside a node and of those between nodes, against what the catalogue states for the device. Waiting is left out: operations
count whose members were all read, or whose time of moving data was recorded. In a node without a switch (a mesh) a group uses the
links between its members only, and is judged by these. One slow link among good ones is `slow-link`. The
cost is what the communication that nothing hides would win at a third of the stated bandwidth.

What to do: check the transport that is used (peer access, NVLink, HCCS, RDMA, not TCP), algorithm and number of channels, placement
of groups on nodes, and other traffic.
"""

from __future__ import annotations

import pandas as pd

from perfkit.core.errors import NotMeasuredError
from perfkit.core.texts import say
from perfkit.explain.diagnose import device as _device
from perfkit.explain.diagnose import hidden
from perfkit.explain.diagnose.advice import Action, fitting
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import COMMUNICATION_BY
from perfkit.explain.diagnose.rule import Finding, Rule, Threshold, Verdict

BANDWIDTH_RATIO = Threshold(
    "bandwidth-ratio", 1 / 3, "share of what the link states", "chosen: good runs reach 0.4 to 0.8 of what links state"
)
BANDWIDTH_BYTES = Threshold("bandwidth-bytes", 32 * 2**20, "bytes", "chosen: 32 MiB take 0.8 ms at 40 GB/s, a hundred latencies")
BANDWIDTH_COUNT = Threshold("bandwidth-count", 4.0, "large messages", "chosen: as many as like links (link-peers)")

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
WORDS = {"intra_node": "inside nodes", "inter_node": "between nodes"}
ACTIONS: tuple[Action, ...] = (
    {
        "ascend": "check the transport: HCCS inside a node; between nodes the state of the ports, hccn_tool -i N -link -g",
        "nvidia": "check the transport: NCCL_DEBUG=INFO names it (P2P inside a node, NET/IB between nodes, not NET/Socket)",
        "amd": "check the transport: NCCL_DEBUG=INFO names it (P2P inside a node, NET/IB between nodes, not NET/Socket)",
    },
    {
        "ascend": "give HCCL larger buffers (HCCL_BUFFSIZE, in MB) and let vector cores reduce (HCCL_OP_EXPANSION_MODE=AIV)",
        "nvidia": "let NCCL choose the algorithm (unset NCCL_ALGO) and give it more channels (NCCL_MIN_NCHANNELS)",
        "amd": "let RCCL choose the algorithm (unset NCCL_ALGO) and give it more channels (NCCL_MIN_NCHANNELS)",
    },
    "keep groups with much traffic inside a node, and look for other jobs on the network",
)


def check(case: Case) -> Verdict:
    """Kinds of links whose median bandwidth is far below what they state."""
    devices = _device.candidates(case)
    if not devices:
        raise NotMeasuredError("which device it is, to know its links", how_to_collect=COMMUNICATION_BY)
    rows = case.operations
    known = rows["basis"].isin(("arrival", "recorded")) & rows["bus_bytes_per_s"].notna() & rows["operation"].isin(OPERATIONS)
    large = rows[known.to_numpy(dtype=bool) & (rows["bytes"] >= case.limit(BANDWIDTH_BYTES)).fillna(False).to_numpy(dtype=bool)]
    if large.empty:
        raise NotMeasuredError("large messages whose moving is told from waiting", how_to_collect=COMMUNICATION_BY)
    large = large.assign(link=_device.kinds_of_links(case, large, devices[0]))
    large = large.assign(bus_bytes_per_s=large["bus_bytes_per_s"] / _device.used_share(large, devices[0]))
    evidence: dict[str, float] = {}
    found = []
    for link, part in large.groupby("link"):
        nominal = min((device.links[str(link)].bytes_per_s for device in devices if str(link) in device.links), default=0.0)
        if not nominal or len(part) < case.limit(BANDWIDTH_COUNT):
            continue
        measured = float(part["bus_bytes_per_s"].median())
        evidence |= {f"{link}_bytes_per_s": measured, f"{link}_stated_bytes_per_s": nominal}
        if measured < case.limit(BANDWIDTH_RATIO) * nominal:
            found.append(_finding(case, str(link), part, measured, nominal))
    if not evidence:
        raise NotMeasuredError(
            say("{count} large messages over one kind of link", count=case.limit(BANDWIDTH_COUNT)),
            how_to_collect=COMMUNICATION_BY,
        )
    return Verdict(tuple(found), evidence)


def _finding(case: Case, link: str, rows: pd.DataFrame, measured: float, nominal: float) -> Finding:
    ratio = measured / nominal
    mine = case.members[case.members["instance"].isin(rows["instance"])]
    exposed_ns = hidden.exposed_ns(case, mine) if case.run.has("kernels") else 0.0
    cost_ns = round(exposed_ns * (1.0 - ratio / case.limit(BANDWIDTH_RATIO)))
    return Finding(
        rule=RULE.name,
        title=say(
            "Large messages {where} move {bus_bytes_per_s} in the median where the device states {stated_bytes_per_s}",
            where=WORDS[link],
            bus_bytes_per_s=measured,
            stated_bytes_per_s=nominal,
        ),
        subject={"groups": tuple(sorted({str(group) for group in rows["group"].dropna().unique()})[:8])},
        evidence={
            "bus_bytes_per_s": measured,
            "stated_bytes_per_s": nominal,
            "ratio_to_stated": ratio,
            "num_messages": float(len(rows)),
            "median_bytes": float(rows["bytes"].median()),
            "exposed_ns": exposed_ns,
        },
        actions=fitting(case, ACTIONS),
        cost_ns=cost_ns or None,
        severity=None if cost_ns else "low",
        next=("13_communication", "17_cluster"),
        part="communication",
    )


RULE = Rule(
    name="bandwidth-low",
    title="Links slower than they state",
    needs=frozenset({"steps", "collectives"}),
    how_to_collect=COMMUNICATION_BY,
    thresholds=(BANDWIDTH_RATIO, BANDWIDTH_BYTES, BANDWIDTH_COUNT),
    check=check,
)
