"""Large messages against what the links of the device state."""

from dataclasses import replace

import pytest

from perfkit.core.run import Fact
from perfkit.core.source import Source
from perfkit.explain.diagnose.rules.bandwidth_low import RULE
from tests.explain.diagnose.made import Training, changed, judged, lacks, stays_healthy

MIB = 2**20


def on(device, mib=64, **changes):
    """Gradients that put so many MiB on the links of 4 ranks in 300 us, after the backward pass."""
    run = changed(Training(late=True, latency_us=0.0, **changes).run(), "collectives", bytes=mib * MIB)
    return replace(run, facts={"device_name": Fact(value=device, source=Source("measured", "made"))})


def test_links_at_three_quarters_of_what_they_state_are_fine():
    evidence = stays_healthy(RULE, on("A100-80GB-SXM"))
    assert evidence["intra_node_bytes_per_s"] == pytest.approx(64 * MIB / 300e-6, rel=0.01)
    assert evidence["intra_node_stated_bytes_per_s"] == 300e9


def test_links_at_a_fifth_are_named_with_what_a_third_would_win():
    (found,) = judged(RULE, on("A100-80GB-SXM", transfer_us=1000.0)).findings
    ratio = 64 * MIB / 1e-3 / 300e9
    assert found.evidence["ratio_to_stated"] == pytest.approx(ratio, rel=0.01)
    assert found.cost_ns == pytest.approx(4 * 1_000_000 * (1 - 3 * ratio), rel=0.05)
    assert found.subject["groups"] == ("world",)


def test_small_messages_and_unknown_devices_show_nothing():
    assert lacks(RULE, on("A100-80GB-SXM", mib=8)) == "large messages whose moving is told from waiting"
    assert lacks(RULE, on("Synthetic Accelerator")) == "which device it is, to know its links"


def test_a_group_of_a_mesh_is_judged_by_the_links_between_its_members():
    evidence = stays_healthy(RULE, on("Ascend-910B2"))
    # Four ranks of eight use three of the seven links of a device: 64 MiB in 300 us are more than what these state.
    assert evidence["intra_node_bytes_per_s"] == pytest.approx(64 * MIB / 300e-6 * 7 / 3, rel=0.01)
