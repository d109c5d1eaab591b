"""Measuring one's own machine, with a library that is made up: what is timed, what it is worth, and what is refused in words."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.face import cli
from perfkit.predict.calibration import calibration, node
from perfkit.predict.calibration.node import find_backend, measure_node
from perfkit.predict.calibration.own import calibrate_with

H100 = catalog.hardware_named("H100-80GB-SXM")
RATE, STARTED_S, LATENCY_S = 0.6, 5e-6, 20e-6


class Made:
    """A library whose products reach a share of the peak and whose links one of theirs; time passes only while it works."""

    name, num_devices = "made 1.0", 8

    def __init__(self, device_name="NVIDIA H100 80GB HBM3", rate=RATE, share=0.8):
        self.device_name, self._rate, self._share, self.now = device_name, rate, share, 0.0

    def product(self, rows, depth, columns):
        def run():
            self.now += STARTED_S + 2 * rows * depth * columns / (self._rate * H100.peak("bfloat16"))

        return run

    def wait(self):
        return None

    def all_reduce_s(self, num_ranks, sizes, seconds):
        if num_ranks == 4:
            raise InputError("measure", ["an all-reduce over 4 ranks failed: no route"])
        moved = 2 * (num_ranks - 1) / num_ranks
        found = {size: LATENCY_S + size * moved / (self._share * H100.links["intra_node"].bytes_per_s) for size in sizes}
        assert seconds > 0
        return {size: time_s for size, time_s in found.items() if size < sizes[-1]}


def measured(made, seconds=300.0):
    return measure_node(made, H100, seconds=seconds, clock=lambda: made.now)


def test_what_was_measured_becomes_the_calibration_of_the_device():
    found = measured(Made())
    assert found.products["share_of_peak"].between(0.5 * RATE, RATE).all()
    assert set(found.collectives["n_devices"]) == {8, 2}
    own, changes = calibrate_with(found.texts, H100, base=calibration("default"))
    told = {change.name: change for change in changes}
    assert told["intra_share"].after == pytest.approx(0.8, rel=0.01)
    assert told["intra_share"].error < 0.01
    assert 0.55 < told["matmul"].after < 0.75
    assert own.value(f"setup.{H100.name}.matmul") == told["matmul"].after


def test_what_the_time_does_not_suffice_for_is_told():
    everything, little = measured(Made()), measured(Made(), seconds=2.0)
    assert (
        everything.left_out[0] == "an all-reduce over 4 ranks failed: no route" or "256 MiB over 8 ranks" in everything.left_out[0]
    )
    assert any("4 ranks failed" in one for one in everything.left_out)
    assert 0 < len(little.products) < len(everything.products)
    assert any("no time was left" in one for one in little.left_out)


def test_another_device_and_no_time_are_refused():
    with pytest.raises(InputError, match="NVIDIA A100-SXM4-80GB"):
        measured(Made("NVIDIA A100-SXM4-80GB"))
    with pytest.raises(InputError, match="must be positive"):
        measured(Made(), seconds=0.0)


def test_a_library_that_sees_no_accelerator_is_said(monkeypatch):
    monkeypatch.setattr(node, "find_spec", lambda name: name == "torch" or None)
    dark = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False))
    monkeypatch.setattr(node, "import_module", lambda _: dark)
    with pytest.raises(InputError, match="sees no accelerator"):
        find_backend()
    monkeypatch.setattr(node, "find_spec", lambda _: None)
    with pytest.raises(InputError, match="torch is not installed beside perfkit; mindspore is not installed"):
        find_backend()


def test_the_command_writes_tables_and_a_calibration_that_calibrate_and_estimate_read(tmp_path, monkeypatch, capsys):
    made = Made()
    monkeypatch.setattr(node, "find_backend", lambda _: made)
    monkeypatch.setattr(node.measure_node, "__kwdefaults__", {"seconds": 300.0, "clock": lambda: made.now})
    target = tmp_path / "mine.toml"
    assert cli.main(["measure", "--device", H100.name, "--out", str(target), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert calibration(str(target)).name == H100.name
    tables = list(told["tables"].values())
    assert cli.main(["calibrate", *tables, "--device", H100.name, "--out", str(tmp_path / "again.toml")]) == 0
    assert calibration(str(tmp_path / "again.toml")).groups == calibration(str(target)).groups
    capsys.readouterr()
    assert cli.main(["measure", "--out", str(tmp_path / "mine.yaml")]) == 2
    wrong = capsys.readouterr().err
    assert "Name it with --device" in wrong
    assert "must end in .toml" in wrong


def test_rates_above_the_peak_are_refused_and_the_tables_stay(tmp_path, monkeypatch, capsys):
    made = Made(rate=1.5)
    monkeypatch.setattr(node, "find_backend", lambda _: made)
    monkeypatch.setattr(node.measure_node, "__kwdefaults__", {"seconds": 300.0, "clock": lambda: made.now})
    assert cli.main(["measure", "--device", H100.name, "--out", str(tmp_path / "mine.toml")]) == 2
    assert "no device computes faster than its peak" in capsys.readouterr().err
    assert (tmp_path / "mine.products.csv").exists()
    assert not (tmp_path / "mine.toml").exists()
