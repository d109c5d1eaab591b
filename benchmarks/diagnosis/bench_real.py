"""How often a diagnosis names the cause that was put into a real recording, whom else it blames, and whether its price is true.

Ten recordings that come with perfkit get one cause at a time: kernels, hosts, transfers, copies or inputs that are slower,
pauses and calls that wait, on some ranks and steps. All that waits for them moves; the true cost is the new step minus the
old one. Causes that nothing but another run can show are judged with the recording as the baseline.

With `--draw SEED` the cases are drawn by chance, also over recordings of which no cause is listed.

example: python -m benchmarks.diagnosis.bench_real --verbose
"""

from __future__ import annotations

import argparse
import time

from benchmarks.diagnosis._drawn import drawn
from benchmarks.diagnosis._real_cases import NEAR, TOLD, Verdict, cases, judged
from benchmarks.diagnosis._timed_anew import CyclicError


def main() -> None:
    """Put causes in, diagnose, score, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose base and cause have this in their name")
    parser.add_argument("--verbose", action="store_true", help="print what was said of every case, not of wrong ones alone")
    parser.add_argument("--draw", type=int, metavar="SEED", help="draw the cases by chance instead")
    parser.add_argument("--each", type=int, default=6, help="how many cases to draw of every recording")
    arguments = parser.parse_args()
    started, found = time.process_time(), []
    for base, cause, with_baseline in cases() if arguments.draw is None else drawn(arguments.draw, arguments.each):
        if arguments.only in f"{base.name}: {cause.name}{' with baseline' if with_baseline else ''}":
            try:
                found.append(judged(base, cause, with_baseline))
            except CyclicError as error:  # a call that was drawn to wait for what its own thread launches later
                print(f"cannot be put in: {base.name}: {cause.name}: {error}")
                continue
            _tell(found[-1], verbose=arguments.verbose)
    _score(found)
    print(f"{len(found)} cases in {time.process_time() - started:.0f} cpu-s")


def _tell(verdict: Verdict, *, verbose: bool) -> None:
    near = verdict.cost_ratio is not None and abs(verdict.cost_ratio - 1) <= NEAR
    price = "" if verdict.cost_ratio is None else f"price {verdict.cost_ratio:.2f}"
    mark = "right" if verdict.right else "MISSED"
    blamed = f" BLAMED {'; '.join(verdict.innocents)}" if verdict.innocents else ""
    print(f"{mark:6} {verdict.true_share:7.3f} {price:11}{verdict.base}: {verdict.cause}{blamed}")
    if verbose or not verdict.right or not near:
        print("      ", "; ".join(verdict.said))


def _score(found: list[Verdict]) -> None:
    worth = [verdict for verdict in found if verdict.true_share >= TOLD]
    right = [verdict for verdict in worth if verdict.right]
    ratios = [verdict.cost_ratio for verdict in right if verdict.cost_ratio is not None]
    near = sum(abs(ratio - 1) <= NEAR for ratio in ratios)
    print(f"\nbases {len({verdict.base for verdict in found})}, causes that cost {TOLD:.1%} and more: {len(worth)}")
    print(f"named: {len(right)} ({len(right) / max(1, len(worth)):.2f})")
    print(f"said besides: {sum(len(verdict.innocents) for verdict in found)}")
    print(f"prices within {NEAR:.0%}: {near} of {len(ratios)} ({near / max(1, len(ratios)):.2f})")


if __name__ == "__main__":
    main()
