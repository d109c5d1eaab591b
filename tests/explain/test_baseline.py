"""The baseline of a log: the published figures, every denominator with its origin, and what is said of them."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from perfkit.config.presets import read_plan
from perfkit.core import catalog
from perfkit.core.errors import NotMeasuredError
from perfkit.core.resources import data_folder
from perfkit.explain.baseline import NAMES, Baseline, baseline, divisor_told, steps_told
from perfkit.predict.cost.utilization import tokens_per_s_per_device
from perfkit.record.load import load

LOGS = sorted((data_folder() / "traces" / "logs").glob("*.log"))
LOG = data_folder() / "traces" / "logs" / "llama2_13b_8card_worker_0.log"
SIZES = {"num_devices": 8, "global_batch_size": 8, "seq_length": 4096}


def of(**given: Any) -> Baseline:
    return baseline(load(LOG), peak_flops_per_s=given.pop("peak", 376e12), **given)


def test_the_published_log_gives_its_published_figures():
    found = of()
    assert found.log["duration_ns"].tolist() == [ms * 1_000_000 for ms in (103_328, 1752, 1754, 1756, 1758)]
    assert found.suggested_warmup == 1
    assert found.statistics.median_ns == 1_755_000_000
    assert found.flops_per_s_per_device.value == pytest.approx(170.421e12)
    assert found.mfu.value == pytest.approx(170.421 / 376, rel=1e-6)
    assert found.told() == ("MFU is 45.3 % of 376 TFLOP/s, by the log's own FLOP rate.",)
    assert of(peak=313e12).mfu.value == pytest.approx(0.5445, rel=1e-3)


def test_keeping_the_compile_step_is_possible_and_warned_about():
    assert steps_told(of()) == ("A step takes 1.755 s (median of 4, 1 warm-up step left out; typical deviation 0.114 %).",)
    told = steps_told(of(num_warmup=0))
    assert told[0].startswith("A step takes 1.756 s (median of 5, nothing left out")
    assert any("59 times the median" in note for note in told)
    assert "Suggested warm-up: 1 steps." in told
    assert any("too few for a baseline" in note for note in steps_told(of(num_warmup=4)))


def test_what_nothing_states_is_not_known_and_never_zero():
    found = of(peak=None)
    figures = found.to_frame().set_index("quantity")["value"]
    assert figures["devices"] == "not known"
    assert not any(
        character.isdigit() for name in ("throughput in tokens", "devices", "MFU") for character in "".join(figures[[name]])
    )
    assert found.tokens_per_s_per_device.state == "absent"
    assert "needs devices" in found.told()[0]


def test_entered_sizes_divide_by_all_devices():
    found = of(given=SIZES, model=catalog.model("llama2-13b"))
    assert found.tokens_per_s_per_device.value == pytest.approx(tokens_per_s_per_device(8, 4096, 1.755, 8))
    assert found.mfu.value == pytest.approx(87.176e9 * found.tokens_per_s_per_device.value / 376e12, rel=1e-4)
    assert f"{found.mfu.value * 100:.1f}" in found.told()[0]
    assert "own FLOP rate" not in found.told()[0]


def test_an_impossible_mfu_is_flagged():
    found = of(given=SIZES | {"global_batch_size": 64}, model=catalog.model("llama2-13b"))
    assert found.mfu.state == "impossible"
    assert found.mfu.value > 1
    assert "impossible" in found.told()[1]


def test_a_configuration_gives_what_the_log_leaves_out():
    found = of(plan=read_plan(str(data_folder() / "case13b" / "round0.yaml")), plan_name="round0.yaml")
    assert found.sizes["num_devices"].value == 8
    assert found.sizes["num_devices"].source == "round0.yaml"


def test_what_a_log_divides_by_is_found_or_said_to_fit_nothing(tmp_path: Path):
    assert divisor_told(of()) == "The log prints no samples/s/p."
    printed = f"\\g<0>\n   0.1% |  | {16 / 1.755 / 8:.5f} samples/s/p  0:10:00 }}"
    text = re.sub(r"^.*per_step_time.*$", printed, LOG.read_text(), flags=re.MULTILINE)
    own = tmp_path / "own.log"
    own.write_text(text)
    told = {batch: divisor_told(baseline(load(own), given={"num_devices": 8, "global_batch_size": batch})) for batch in (0, 16, 17)}
    assert told[0].endswith("devices and global batch say by what it divides.")
    assert told[16] == "The log's 1.140 samples/s/p is divided by all devices (8)."
    assert told[17] == "The log prints 1.140 samples/s/p, which does not fit all devices: check batch and devices."
    plan = read_plan(str(data_folder() / "case13b" / "round0.yaml"))
    data = plan.parallel.data_parallel_size
    given = {"num_devices": 2 * data, "global_batch_size": round(1.140 * 1.755 * data)}
    assert divisor_told(baseline(load(own), given=given), plan).endswith(f"divided by the data-parallel size ({data}).")


def test_a_profile_is_no_log_and_the_error_says_where_to_go():
    with pytest.raises(NotMeasuredError, match="page 11"):
        baseline(load(data_folder() / "traces" / "torch_npu_2rank"))


@pytest.mark.parametrize("log", LOGS, ids=lambda path: path.name)
def test_an_origin_names_only_what_is_known_and_a_need_only_what_is_not(log):
    run = load(log)
    for known in itertools.product((False, True), repeat=3):
        given = {name: SIZES[name] for name, there in zip(NAMES, known, strict=True) if there}
        found = baseline(run, given=given)
        for shown in (found.samples_per_s_per_device, found.tokens_per_s_per_device):
            rate, origin = shown.value, shown.source
            for name, size in found.sizes.items():
                if NAMES[name] in origin.removesuffix("; by the log's own count of devices"):
                    assert (size.value is None) == (rate is None), (origin, found.sizes)
            assert origin.startswith("needs") == (rate is None)
