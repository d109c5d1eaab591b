"""Placement: the groups of a run and where its ranks stand, stated, named or told by use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perfkit.core.placement import dimension_of, group_frame, groups, positions
from perfkit.core.run import Position, Run
from perfkit.record.format import Sink
from perfkit.record.load import load

DATA = Path(__file__).parents[1] / "data" / "traces"


def _run(stated: list[dict[str, Any]], used: list[dict[str, Any]] = []) -> Run:  # noqa: B006
    sink = Sink()
    for row in stated:
        sink.add("groups", **row)
    for row in used:
        sink.add("collectives", **{"name": "a", "operation": "all_reduce", "duration_ns": 1, **row})
    return Run(name="made", kind="measured", format="test", tables=sink.tables())


@pytest.mark.parametrize(
    ("label", "dimension"),
    [
        ("tp", "tensor"),
        ("TENSOR_MODEL_PARALLEL_GROUP", "tensor"),
        ("mesh_dp", "data"),
        ("DATA_PARALLEL_GROUP", "data"),
        ("PIPELINE_MODEL_PARALLEL_GROUP", "pipeline"),
        ("cp", "context"),
        ("exp", "expert"),
        ("dp_cp", None),
        ("mp", None),
        ("embd", None),
        ("default_pg", None),
        ("hccl_world_group", None),
        (None, None),
    ],
)
def test_a_label_names_one_dimension_or_none(label: str | None, dimension: str | None):
    assert dimension_of(label) == dimension


def test_stated_groups_place_their_ranks():
    stated = [
        {"rank": rank, "label": label, "members": members}
        for label, lists in {"tp": ["0,1", "2,3"], "dp": ["0,2", "1,3"], "default_group": ["0,1,2,3"]}.items()
        for members in lists
        for rank in map(int, members.split(","))
    ]
    assert positions(_run(stated)) == {
        0: Position(data=0, tensor=0),
        1: Position(data=0, tensor=1),
        2: Position(data=1, tensor=0),
        3: Position(data=1, tensor=1),
    }


def test_dp_cp_is_the_data_group_where_no_context_is_split():
    assert positions(_run([{"rank": 1, "label": "dp_cp", "members": "0,1"}])) == {1: Position(data=1)}


def test_two_families_of_groups_are_tensor_and_data():
    used = [
        {"rank": rank, "group": name, "group_size": len(ranks)}
        for name, ranks in {"a": (0, 1), "b": (2, 3), "c": (0, 2), "d": (1, 3)}.items()
        for rank in ranks
    ]
    assert positions(_run([], used))[3] == Position(data=1, tensor=1)


def test_pairs_that_only_send_and_receive_are_a_pipeline():
    used = [
        {"rank": rank, "group": name, "group_size": 2, "operation": "send"}
        for name, ranks in {"a": (0, 2), "b": (2, 4), "c": (1, 3), "d": (3, 5)}.items()
        for rank in ranks
    ]
    placed = positions(_run([], used))
    assert [placed[rank].pipeline for rank in range(6)] == [0, 0, 1, 1, 2, 2]


def test_one_family_of_groups_does_not_say_what_it_is_for():
    used = [{"rank": rank, "group": "w", "group_size": 2} for rank in (0, 1)]
    assert [group.dimension for group in groups(_run([], used))] == [None]
    assert positions(_run([], used)) == {}


def test_a_group_of_which_members_are_missing_is_no_group():
    assert groups(_run([], [{"rank": 0, "group": "w", "group_size": 8}])) == ()


def test_pg_config_of_a_trace_names_its_groups():
    frame = group_frame(load(DATA / "hta" / "nccl_parser_config", cache=False))
    assert frame[["name", "label", "members"]].to_numpy().tolist() == [["0", "default_pg", "0, 1"]]


def test_named_groups_of_a_cluster_place_its_eight_ranks():
    run = load(DATA / "msinsight_groups", cache=False)
    assert run.placement[0].tensor == 0
    assert {group.dimension for group in groups(run)} >= {"tensor", "data", None}


def test_a_group_that_collectives_name_has_the_label_that_was_recorded_for_its_members():
    stated = [{"rank": rank, "label": "tp", "members": "0,1"} for rank in (0, 1)]
    used = [{"rank": rank, "step": 1, "group": "7971", "group_size": 2, "name": "allReduce"} for rank in (0, 1)]
    run = _run(stated, used)
    assert [(group.name, group.label, group.members, group.dimension) for group in groups(run)] == [
        ("7971", "tp", (0, 1), "tensor")
    ]
