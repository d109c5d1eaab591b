"""Makespans of many layouts at once (16 stages x 3 chunks x 16 micro batches); the yardstick simulates them one by one."""

from __future__ import annotations

import numpy as np

from benchmarks.paired import compare
from perfkit.core.resources import data_folder
from perfkit.predict.plans.balance._evaluator import Evaluator
from perfkit.predict.plans.balance.case_file import read_problem
from perfkit.predict.plans.balance.moves import LayerPlanner
from perfkit.predict.plans.schedule.longest import makespans, node_ends

BATCH, ONE_BY_ONE = 2048, 16


def main() -> None:
    """Print the ratio for equal numbers of layouts, and layouts a second for orientation."""
    planner = LayerPlanner(read_problem(data_folder() / "plans" / "gpt_175b_16_stages_3_chunks.json"))
    evaluator: Evaluator = planner.evaluator
    layouts = np.repeat(planner.layout(planner.even())[None], BATCH, axis=0)
    table = evaluator.durations_ns(layouts)
    column = table[:, 0].tolist()
    share = BATCH // ONE_BY_ONE
    ratio = compare(
        f"{BATCH} layouts in a batch, {ONE_BY_ONE} one by one",
        lambda: makespans(evaluator.dag, table),
        lambda: [node_ends(evaluator.dag, column) for _ in range(ONE_BY_ONE)],
    )
    print(ratio)
    print(f"{BATCH / ratio.subject_s:,.0f} layouts/s in a batch, {share / ratio.median:.0f} times as fast as one by one")


if __name__ == "__main__":
    main()
