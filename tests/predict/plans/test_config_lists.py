"""Layouts as configuration lists, against worked MindFormers examples."""

import numpy as np
import pytest

from perfkit.predict.plans.balance.config_lists import (
    layout_of_lists,
    megatron_layout,
    mindformers_lists,
    mindformers_text,
)
from perfkit.predict.plans.balance.problem import Kind, LayerType, PipelineProblem, layers_of, layout_from_kind_counts
from tests.predict.plans.case_documents import document

KINDS = {"none": (20, 50), "select": (21, 40), "comm": (22, 30), "both": (23, 20), "full": (30, 5)}
GOOD = [case for case in document("d16")["cases"] if case["expected"]["ok"]]


def problem_for(layers):
    chunks, stages = np.array(layers).shape
    kinds = {name: Kind(bwd_ns=time, act_bytes=size) for name, (time, size) in KINDS.items()}
    body = LayerType(name="layer", count=int(np.sum(layers)), fwd_ns=10, param_bytes=1, kinds=kinds)
    return PipelineProblem(
        schedule="1f1b" if chunks == 1 else "vpp",
        num_stages=stages,
        num_chunks=chunks,
        num_microbatches=2 * stages,
        body=(body,),
        min_layers_per_chunk=0,
    )


def made(case):
    answer = case["expected"]
    problem = problem_for(answer["layers"])
    return problem, layout_from_kind_counts(problem, {"layer": answer["counts"]}), answer


@pytest.mark.parametrize("case", GOOD, ids=lambda case: case["name"])
def test_layers_and_kinds_are_written_as_the_worked_examples(case):
    _, layout, answer = made(case)
    assert megatron_layout(layout) == answer["megatron_layout"]


@pytest.mark.parametrize("case", GOOD, ids=lambda case: case["name"])
def test_the_lists_lead_back_to_the_layout(case):
    problem, layout, answer = made(case)
    lists = mindformers_lists(problem, layout)
    average = problem.num_layers // (problem.num_stages * problem.num_chunks)
    assert (np.array(lists.offset) + average).tolist() == answer["layers"] == layers_of(layout)
    assert lists.notes == ()
    back = layout_of_lists(
        problem,
        np.array([answer["layers"]]),
        np.array(lists.recompute),
        np.array(lists.select_recompute),
        np.array(lists.select_comm_recompute),
    )
    assert (back == layout).all()


def test_an_offset_of_the_configuration_is_given_back():
    for case in GOOD:
        if "offset" in case["config"]:
            problem, layout, _ = made(case)
            given = np.atleast_2d(case["config"]["offset"]).tolist()
            assert mindformers_lists(problem, layout).offset == given


def test_select_only_and_comm_only_layers_in_one_chunk_are_noted_with_what_the_lists_give():
    problem = problem_for([[4, 4]])
    layout = layout_from_kind_counts(problem, {"layer": {"select": [[1, 0]], "comm": [[2, 0]], "none": [[1, 4]]}})
    lists = mindformers_lists(problem, layout)
    assert (lists.select_recompute, lists.select_comm_recompute) == ([[1, 0]], [[2, 0]])
    assert len(lists.notes) == 1
    assert "cannot express" in lists.notes[0]
    assert mindformers_text(lists).startswith("# Prefix lists")


def test_a_type_without_a_kind_is_recomputed_less():
    problem = problem_for([[2, 2]])
    dense = LayerType(name="dense", count=2, fwd_ns=10, param_bytes=1, kinds={"none": Kind(bwd_ns=20, act_bytes=50)})
    both = PipelineProblem(schedule="1f1b", num_stages=2, num_microbatches=4, body=(dense, problem.body[0]))
    layers = np.array([[[2, 0]], [[1, 3]]])
    found = layout_of_lists(both, layers, *(np.array(rows) for rows in ([[0, 0]], [[3, 1]], [[0, 0]])))
    assert found[:, 0, :].tolist() == [[2, 0], [0, 2], [1, 1], [0, 0], [0, 0], [0, 0]]


def test_an_empty_chunk_has_an_empty_part_in_the_layout_string():
    problem = problem_for([[0, 1, 3]])
    assert megatron_layout(layout_from_kind_counts(problem, {"layer": {"none": [[0, 1, 3]]}})) == "E|t|t*3L"
