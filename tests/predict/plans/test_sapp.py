"""SAPP's own files: the peaks of a run are taken apart, its layers written and read back, and what is missing is named."""

from __future__ import annotations

import json

import pytest

from perfkit.core.errors import InputError
from perfkit.core.units import MIB
from perfkit.face.cli import main
from perfkit.predict.plans.balance.balance import balance
from perfkit.predict.plans.balance.sapp import Asked, is_sapp, read_sapp, write_layers

CONST, PARAM, KEPT, FULL, HEAD, TAIL = 500, 900, 300, 40, 4000, 2500
OFFSET, RECOMPUTED = [0, 1, -1, 1, -1, 0], [1, 2, 0, 1, 2, 0]


def peak(stage: int) -> int:
    """The peak of a stage by the tool's own formula, in MB."""
    layers, full = 4 + OFFSET[stage], RECOMPUTED[stage]
    end = HEAD if stage == 0 else TAIL if stage == 5 else 0
    return CONST + layers * PARAM + (6 - stage) * (full * FULL + (layers - full) * KEPT) + end


START = f"""# pipeline_config
pipeline_config:
  pipeline_num: 6
  num_layer: 24
  offset: {OFFSET}
time_config:
  head: 30
  body: 90
  tail: 60
recompute_config:
  recompute: {RECOMPUTED}
  select_recompute: false
  select_comm_recompute: false
memory_usage:
  head_memory: {peak(0)}
  tail_memory: {peak(5)}
  body_memories:
    stage_id: [1, 2, 3, 4]
    memories: {[peak(stage) for stage in (1, 2, 3, 4)]}
"""


def test_what_a_layer_keeps_is_found_from_the_peaks():
    assert is_sapp(START)
    problem = read_sapp(START, "init.yaml", Asked(micro_batches=12))
    layer = problem.body[0]
    assert (problem.num_stages, problem.num_microbatches, layer.count) == (6, 12, 24)
    assert layer.param_bytes == pytest.approx(PARAM * MIB, rel=1e-6)
    assert layer.kinds["none"].act_bytes == pytest.approx(KEPT * MIB, rel=1e-6)
    assert layer.kinds["full"].act_bytes == pytest.approx(FULL * MIB, rel=1e-6)
    assert problem.head is not None
    assert problem.tail is not None
    assert problem.head.param_bytes == pytest.approx(HEAD * MIB, rel=1e-6)
    assert problem.tail.param_bytes == pytest.approx(TAIL * MIB, rel=1e-6)
    assert (layer.fwd_ns, layer.kinds["none"].bwd_ns, layer.kinds["full"].bwd_ns) == (30_000_000, 60_000_000, 90_000_000)
    assert any("SAPP's default" in text for text in problem.assumptions)


def test_rounds_are_read_as_one_set_of_peaks():
    rounds = START.replace(f"offset: {OFFSET}", f"offset: [{OFFSET}, {OFFSET}]")
    rounds = rounds.replace(f"recompute: {RECOMPUTED}", f"recompute: [{RECOMPUTED}, {RECOMPUTED}]")
    rounds = rounds.replace("select_recompute: false", "select_recompute: [false, false]")
    rounds = rounds.replace("select_comm_recompute: false", "select_comm_recompute: [false, false]")
    rounds = rounds.replace("[1, 2, 3, 4]", "[[1, 2], [3, 4]]")
    rounds = rounds.replace(str([peak(s) for s in (1, 2, 3, 4)]), str([[peak(1), peak(2)], [peak(3), peak(4)]]))
    assert read_sapp(rounds, "init.yaml").body == read_sapp(START, "init.yaml").body


def test_layers_are_written_and_read_back():
    problem = read_sapp(START, "init.yaml")
    text = write_layers(problem)
    assert is_sapp(text)
    again = read_sapp(text, "layers.json", Asked(stages=6))
    assert again.body == problem.body
    assert (again.head, again.tail) == (problem.head, problem.tail)


def test_a_file_of_layers_is_balanced(tmp_path, capsys):
    file = tmp_path / "model.json"
    file.write_text(write_layers(read_sapp(START, "init.yaml")), encoding="utf-8")
    assert main(["balance", str(file), "--stages", "6", "--micro-batches", "12", "--memory-limit-gib", "20", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["gap"] == pytest.approx(0, abs=1e-6)
    start = tmp_path / "init.yaml"
    start.write_text(START, encoding="utf-8")
    assert main(["balance", str(start), "--out", str(tmp_path / "layers.json"), "--time-limit-s", "20"]) == 0
    assert "memory_parameter" in (tmp_path / "layers.json").read_text(encoding="utf-8")


def test_a_tighter_limit_never_makes_a_step_shorter():
    wide, narrow = (balance(read_sapp(START, "init.yaml", Asked(memory_limit_bytes=size * MIB))) for size in (30_000, 13_000))
    assert narrow.makespan_ns is None or narrow.makespan_ns >= (wide.makespan_ns or 0)


@pytest.mark.parametrize(
    ("before", "after", "word"),
    [
        ("time_config:\n  head: 30\n  body: 90\n  tail: 60\n", "", "time_config is missing"),
        ("pipeline_num: 6", "pipeline_num: six", "pipeline_num"),
        ("stage_id: [1, 2, 3, 4]", "stage_id: [1, 2, 3]", "equally long"),
        (f"recompute: {RECOMPUTED}", "recompute: [9, 9, 9, 9, 9, 9]", "more are recomputed"),
        ("body: 90", "body: fast", "time_config.body"),
    ],
)
def test_what_is_wrong_is_named(before, after, word):
    with pytest.raises(InputError, match=word):
        read_sapp(START.replace(before, after), "init.yaml")
