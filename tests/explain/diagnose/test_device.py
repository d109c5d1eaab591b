"""Devices by the names that profilers write."""

import pytest

from perfkit.explain.diagnose.device import named


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("A100-80GB-SXM", ["A100-80GB-SXM"]),
        ("NVIDIA H100 80GB HBM3", ["H100-80GB-SXM"]),
        ("NVIDIA H100 PCIe", ["H100-80GB-PCIe"]),
        ("NVIDIA A100-SXM4-40GB", ["A100-40GB-SXM"]),
        ("NVIDIA A100-PG509-200", ["A100-40GB-SXM", "A100-80GB-SXM"]),
        ("Tesla V100-SXM2-32GB", ["V100-32GB-SXM"]),
        ("NVIDIA GeForce RTX 4090", ["RTX4090-24GB"]),
        ("AMD Instinct MI300X VF", ["MI300X-192GB"]),
        ("NVIDIA GB200", ["GB200-186GB"]),
        ("NVIDIA H20", ["H20-96GB-SXM"]),
        ("Ascend910B", ["Ascend-910B1", "Ascend-910B2", "Ascend-910B3", "Ascend-910B4"]),
        ("Ascend910B2", ["Ascend-910B2"]),
        ("Ascend910", []),
        ("AMD Instinct MI210", []),
        ("Synthetic Accelerator", []),
    ],
)
def test_a_written_name_means_all_devices_that_fit_and_no_other(written, meant):
    assert [device.name for device in named(written)] == meant
