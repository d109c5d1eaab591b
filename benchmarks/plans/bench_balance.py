"""Solving the bundled cases to a proven optimum; the yardstick evaluates all single moves of the largest case a few times."""

from __future__ import annotations

from benchmarks.paired import compare
from perfkit._resources import data_folder
from perfkit.plans.balance import balance
from perfkit.plans.case_file import read_problem
from perfkit.plans.moves import LayerPlanner

CASES = ("dense_moe_4_stages", "gpt_175b_16_stages", "llama_96_layers_16_stages")
REPEATS = 5


def main() -> None:
    """Print a ratio a case, with its status."""
    folder = data_folder() / "plans"
    planner = LayerPlanner(read_problem(folder / "gpt_175b_16_stages_3_chunks.json"))
    layout = planner.layout(planner.even())
    for name in CASES:
        problem = read_problem(folder / f"{name}.json")
        result = balance(problem)
        print(f"{name}: {result.status}, gap {result.gap}, {result.rounds} rounds, {result.num_cuts} paths")
        print(
            compare(
                name,
                lambda problem=problem: balance(problem),
                lambda: [planner.moves(layout) for _ in range(REPEATS)],
                rounds=3,
            )
        )


if __name__ == "__main__":
    main()
