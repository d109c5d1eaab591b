"""Which wrong figures the tests of a folder would not notice: `python -m benchmarks.mutation perfkit/predict/cost`.

One number, operator or comparison of the folder is made wrong at a time (a random sample, by seed), and the tests of the mirrored
folder run that import its module, directly or by others. A mutant that they pass has survived: read it, and either write a test
against an independent number or see that it changes nothing anyone can measure. Processes that tests start do not have the mutant.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

from benchmarks.mutation.mutants import Mutant, mutant, number_of
from benchmarks.mutation.trial import trials


def main() -> int:
    """Measure, print the survivors and the score."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("folder", type=Path, help="a folder or module of the package, as perfkit/predict/cost")
    words.add_argument("--tests", type=Path, nargs="*", help="the tests (default: the mirrored folder)")
    words.add_argument("--sample", type=int, default=80)
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("--at", nargs="*", default=[], metavar="PATH:LINE", help="all mutants of these lines, instead of a sample")
    words.add_argument("--cpu-s", type=int, default=60, help="processor seconds of tests that a mutant must pass to survive")
    words.add_argument("--files", type=int, default=None, help="only so many test files for a mutant, the nearest")
    said = words.parse_args()
    tests = said.tests or [Path("tests", *said.folder.with_suffix("").parts[1:])]
    chosen = _at(said.at) if said.at else _sample(said.folder, said.sample, said.seed)
    alive = 0
    for one, survived in trials(chosen, tests, said.cpu_s, said.files):
        alive += survived
        print("survived" if survived else "killed  ", one, flush=True)
    print(f"{len(chosen) - alive} of {len(chosen)} killed: {1 - alive / max(len(chosen), 1):.1%}")
    return 0


def _sample(folder: Path, number: int, seed: int) -> list[Mutant]:
    files = sorted(folder.rglob("*.py")) if folder.is_dir() else [folder]
    every = [(path, place) for path in files for place in range(number_of(path))]
    return [mutant(*chosen) for chosen in sorted(random.Random(seed).sample(every, min(number, len(every))))]


def _at(places: list[str]) -> list[Mutant]:
    wanted = [(Path(path), int(line)) for path, line in (place.rsplit(":", 1) for place in places)]
    found = [mutant(path, number) for path in {path for path, _ in wanted} for number in range(number_of(path))]
    return [one for one in found if (one.path, one.line) in wanted]


if __name__ == "__main__":
    sys.exit(main())
