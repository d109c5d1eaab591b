"""`perfkit balance` for a configuration: layers and recomputation that fit, written back in its dialect."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from perfkit import estimate, read_config
from perfkit.core.units import GIB
from perfkit.face.cli import main

CONFIGS = Path(__file__).parents[3] / "data" / "configs"
TOML, YAML = str(CONFIGS / "llama2_13b.toml"), str(CONFIGS / "pretrain_llama2_70b_bf16_64p.yaml")
CASE = str(CONFIGS.parent / "plans" / "dense_moe_4_stages.json")


def test_the_configuration_written_fits_as_the_estimate_finds(capsys, tmp_path):
    target = tmp_path / "balanced.toml"
    assert main(["balance", TOML, "--memory-limit-gib", "60", "--out", str(target), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["status"] == "optimal"
    assert document["lost"] == []
    plan = read_config(target)
    memory = estimate(plan).memory
    assert memory.total <= 60 * GIB < estimate(read_config(TOML)).memory.total
    assert memory.total == pytest.approx(max(document["peak_bytes"]), rel=0.01)
    assert sum(map(sum, document["layers"])) == plan.model.num_layers


def test_only_what_the_balance_found_changes(capsys, tmp_path):
    target = tmp_path / "balanced.yaml"
    assert main(["balance", YAML, "--device", "Ascend-910B2", "--out", str(target)]) == 0
    assert "calculators, not measured" in capsys.readouterr().out
    old, new = (Path(path).read_text(encoding="utf-8").splitlines() for path in (YAML, target))
    changed = [line for line, other in zip(old, new, strict=True) if line != other]
    assert all("recompute" in line or "offset" in line for line in changed)


def test_more_memory_never_makes_the_step_longer(capsys):
    steps = []
    for limit in ("57", "60", "64"):
        assert main(["balance", TOML, "--memory-limit-gib", limit, "--json"]) == 0
        steps.append(json.loads(capsys.readouterr().out)["makespan_ns"])
    assert steps == sorted(steps, reverse=True)


def test_a_limit_that_nothing_fits_writes_nothing(capsys, tmp_path):
    target = tmp_path / "none.toml"
    assert main(["balance", TOML, "--memory-limit-gib", "30", "--out", str(target)]) == 2
    assert "the smallest limit that works is" in capsys.readouterr().err
    assert not target.exists()


def test_a_run_scales_the_times(capsys, tmp_path):
    plan = read_config(TOML)
    config = tmp_path / "small.toml"
    replace(plan, workload=replace(plan.workload, global_batch_size=64)).write(config)
    slower = ["--fault", "slow_op:matmul:2"]
    for name, faults in (("sound", []), ("slow", slower)):
        assert (
            main(["simulate", str(config), "--out", str(tmp_path / name), "--steps", "2", "--ranks", "0,8", "--no-cost", *faults])
            == 0
        )
    capsys.readouterr()
    makespans = []
    for run in ([], ["--run", str(tmp_path / "sound")], ["--run", str(tmp_path / "slow")]):
        assert main(["balance", str(config), "--json", *run]) == 0
        makespans.append(json.loads(capsys.readouterr().out)["makespan_ns"])
    assert makespans[1] == pytest.approx(makespans[0], rel=0.1)
    assert makespans[2] > 1.1 * makespans[1]


def test_what_does_not_fit_together_is_refused(capsys):
    assert main(["balance", str(CONFIGS / "pretrain_llama2_7b.yaml"), "--device", "Ascend-910B2"]) == 2
    assert "only one stage" in capsys.readouterr().err
    assert main(["balance", YAML]) == 2
    assert "--device" in capsys.readouterr().err
    assert main(["balance", str(CONFIGS.parent / "plans" / "dense_moe_4_stages.json"), "--out", "x"]) == 2
    assert "--out needs a configuration" in capsys.readouterr().err


def test_standard_input_takes_a_configuration_as_well_as_a_case(capsys, monkeypatch):
    documents = []
    for path, options in ((TOML, ["--memory-limit-gib", "60"]), (CASE, [])):
        for given in (path, "-"):
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(Path(path).read_bytes())))
            assert main(["balance", given, "--json", *options]) == 0
            documents.append(json.loads(capsys.readouterr().out))
    for file, piped in (documents[:2], documents[2:]):
        assert {**piped, "seconds": 0} == {**file, "seconds": 0}


def test_what_is_wrong_with_standard_input_is_said_under_its_name(capsys, monkeypatch):
    case = b'{"format": "perfkit.plans.plan/1", "problem": {"schedule": "1f2b"}}'
    for text, message in ((b"\xff", "not UTF-8"), (b"", "empty"), (case, "schedule = '1f2b'")):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
        assert main(["balance", "-"]) == 2
        printed = capsys.readouterr().err
        assert "standard input" in printed
        assert message in printed
