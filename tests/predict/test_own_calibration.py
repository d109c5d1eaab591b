"""A calibration of one's own: the formats of the tests, their numbers by hand, and that predictions follow what was measured."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.workload import Workload
from perfkit.face.cli import main
from perfkit.predict.calibration.file import calibration
from perfkit.predict.calibration.link_rates import fit_links, read_link_rates
from perfkit.predict.calibration.own import calibrate_with
from perfkit.predict.estimate import estimate

A100 = catalog.hardware_named("A100-80GB-SXM")
MEASURED = pd.read_csv(data_folder() / "reference" / "allreduce.csv")
PAIR = MEASURED[(MEASURED["accelerator"] == A100.name) & (MEASURED["source"] == "vtrain")]
NCCL = """# nThread 1 nGpus 8 minBytes 1048576 maxBytes 1073741824 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1
#
# Using devices
{devices}
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
{rows}
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 150
"""


def nccl_text(ranks: int = 8, nodes: int = 1, card: str = "NVIDIA A100-SXM4-80GB", *, faster: float = 1.0) -> str:
    """What all_reduce_perf would print of the measured rows of a group (each number as nccl-tests rounds it)."""
    devices = "\n".join(
        f"#  Rank {rank:2d} Group  0 Pid  {900 + rank} on  node{rank * nodes // ranks} device {rank:2d} [0x07] {card}"
        for rank in range(ranks)
    )
    lines = []
    for row in PAIR[PAIR["n_devices"] == ranks].itertuples():
        time_us = row.time_ns / 1000 / faster
        rate = row.size_bytes / time_us / 1000
        bus = rate * 2 * (ranks - 1) / ranks
        cells = f"{time_us:8.2f} {rate:7.2f} {bus:7.2f}      0"
        lines.append(f"{row.size_bytes:12d} {row.size_bytes // 4:12d}     float     sum      -1 {cells} {cells}")
    return NCCL.format(devices=devices, rows="\n".join(lines))


def hccl_text(ranks: int) -> str:
    lines = [f"{row.size_bytes} | {row.time_ns / 1000:.2f} | {row.size_bytes / row.time_ns:.5f} | success"
             for row in PAIR[PAIR["n_devices"] == ranks].itertuples()]  # fmt: skip
    head = "the minbytes is 1048576, maxbytes is 1073741824, iters is 20, warmup_iters is 5\n"
    return head + "data_size(Bytes): | aveg_time(us): | alg_bandwidth(GB/s): | check_result:\n" + "\n".join(lines)


def test_one_measurement_gives_the_same_numbers_in_every_format():
    table = fit_links(read_link_rates(PAIR[PAIR["n_devices"] == 8].to_csv(index=False), "a.csv"), A100)
    printed = fit_links(read_link_rates(nccl_text(), "nccl.log"), A100)
    ascend = fit_links(read_link_rates(hccl_text(8), "hccl.log", operation="all_reduce", num_ranks=8), A100)
    for name, value in table.items():
        assert printed[name] == pytest.approx(value, rel=0.02), name
        assert ascend[name] == pytest.approx(value, rel=0.02), name


def test_measured_groups_give_the_numbers_that_the_default_states_of_them():
    """Those of the default were fitted by hand to the same table: 0.75 of the link, 14 us a hop, 0.83 and 0.93 for small groups."""
    found = fit_links(read_link_rates(PAIR.to_csv(index=False), "allreduce.csv"), A100)
    default = calibration("default")
    for name in ("intra_share", "intra_latency_s", "pair", "quad"):
        assert found[name] == pytest.approx(default.value(f"common.{name}"), rel=0.03), name
    assert found["error"] < 0.05


def test_a_latency_and_a_rate_that_were_put_in_come_out():
    """100 GB/s of a rank and 50 us: 2 x 7/8 of the size, in groups of 8 of one node; over 4 nodes 40 GB/s and 80 us."""
    sizes = [2**power for power in range(14, 31)]
    rows = [("all_reduce", 8, 1, size, 50_000 + 1.75 * size / 100) for size in sizes]
    rows += [("all_gather", 32, 4, size, 80_000 + 31 / 32 * size / 40) for size in sizes]
    table = pd.DataFrame(rows, columns=["operation", "n_devices", "n_nodes", "size_bytes", "time_ns"])
    found = fit_links(read_link_rates(table.to_csv(index=False), "made.csv"), A100)
    link, between = (A100.links[name].bytes_per_s for name in ("intra_node", "inter_node"))
    assert found["intra_share"] * link == pytest.approx(100e9, rel=1e-3)
    assert found["intra_latency_s"] * 5 == pytest.approx(50e-6, rel=1e-3)  # 2 + log2 8
    assert found["inter_share"] * between * 8 == pytest.approx(40e9, rel=1e-3)
    assert found["inter_latency_s"] * 2 + 50e-6 == pytest.approx(80e-6, rel=1e-3)
    assert found["error"] < 1e-3


def test_predictions_follow_the_measured_link():
    plan = Plan(
        model=catalog.model("llama2-7b"),
        workload=Workload(seq_length=4096, micro_batch_size=1, global_batch_size=16),
        parallel=ParallelPlan(tensor_parallel_size=8),
        hardware=A100,
    )
    slow, changes = calibrate_with({"slow.log": nccl_text(faster=0.5)}, A100)
    usual, _ = calibrate_with({"usual.log": nccl_text()}, A100)
    assert {change.name for change in changes} == {"intra_share", "intra_latency_s"}
    exposed = [estimate(plan, calibration=one).breakdown.parts["communication/exposed/tp"] for one in (usual, slow)]
    assert exposed[1] == pytest.approx(2 * exposed[0], rel=0.05)


def test_products_and_links_of_one_cluster_make_one_calibration(tmp_path, capsys):
    rates = tmp_path / "products.csv"
    products = pd.read_csv(data_folder() / "reference" / "operator_rates.csv")
    products[products["accelerator"] == "A100-80GB-PCIe"].assign(accelerator=A100.name).to_csv(rates, index=False)
    log = tmp_path / "all_reduce.log"
    log.write_text(nccl_text())
    target = tmp_path / "mine.toml"
    assert main(["calibrate", str(log), str(rates), "--device", A100.name, "--out", str(target)]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("intra_share", "matmul", "half_depth", "mine.toml"))
    own = calibration(str(target))
    assert own.groups["setup"][A100.name]["intra_share"] == pytest.approx(0.763, rel=0.02)
    assert own.origin.endswith("over default")


def test_measured_steps_are_fitted_over_what_the_links_say():
    frame = pd.read_csv(data_folder() / "reference" / "step_time.csv")
    rows = frame[frame["source"] == "megatron-lm"].head(12) if (frame["source"] == "megatron-lm").any() else frame.head(12)
    own, changes = calibrate_with({"nccl.log": nccl_text(), "steps.csv": rows.to_csv(index=False)}, A100)
    assert own.points == len(rows)
    assert {"nccl.log", "steps.csv"} == {change.file for change in changes}


def test_what_a_device_cannot_reach_and_another_device_are_refused_with_their_lines():
    with pytest.raises(InputError) as told:
        fit_links(read_link_rates(nccl_text(faster=2.0), "fast.log"), A100, "fast.log")
    assert len(told.value.problems) > 3
    assert all("is above the 300 GB/s of the links of A100-80GB-SXM" in problem for problem in told.value.problems)
    with pytest.raises(InputError, match="was run on 'NVIDIA H100 80GB HBM3', not on A100"):
        calibrate_with({"h.log": nccl_text(card="NVIDIA H100 80GB HBM3")}, A100)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (hccl_text(8), "--operation"),
        (hccl_text(8), "--ranks"),
        ("a,b\n1,2\n", "known are collectives"),
        ("operation,size_bytes\nall_reduce,4\n", "column 'n_devices' is missing"),
        ("operation,n_devices,n_nodes,size_bytes,time_ns\nbroadcast,8,1,4,5\nall_reduce,8,1,8,nan\n", "line 3"),
        (NCCL.format(devices="#", rows="1048576 262144 float sum -1 10.0 104.9 183.5 0 10.0 104.9 183.5 0"), "--ranks"),
        (NCCL.format(devices="#", rows="1048576 what"), "does not fit the header"),
    ],
)
def test_what_a_file_leaves_open_is_asked_for(text, words):
    with pytest.raises(InputError) as told:
        calibrate_with({"file": text}, A100)
    assert words in str(told.value)


def test_a_device_is_not_known_by_its_links_alone():
    odd = replace(A100, name="Unheard-X1")
    text = nccl_text(card="Unheard X1")
    own, _ = calibrate_with({"a.log": text}, odd)
    assert not own.groups.get("setup", {}).get("Unheard-X1")
    assert own.common["intra_share"] == pytest.approx(0.763, rel=0.02)
