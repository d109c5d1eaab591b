"""Damaged recordings: nothing but an error of perfkit, no hang, bounded memory, and no total that changes without a word.

example: python -m benchmarks.trace.bench_damaged --first 0 --count 500

Every number is a seed: it draws a recording of the samples, a file of it and a damage (`_damages`), so that a finding comes back
by `--first SEED --count 1 --keep FOLDER`. They are opened and summarized in forks, so that one that ends its process is a finding
too. Large samples are thinned out first. Prints a line for each finding, then what happened by damage; ends with 1 if there is one.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.trace import _damages
from perfkit.core.errors import PerfkitError
from perfkit.explain.summary import summarize
from perfkit.record.load import load

ROOT = Path(__file__).parents[2]
SAMPLES = (ROOT / "tests/data/traces", ROOT / "data/traces")
MANY_BYTES = 300_000
"""Of a sample as text, before it is thinned out."""
LIMIT_S, LIMIT_BYTES = 10, 300_000_000
BATCH = 250
"""Seeds that one process tries, so that what it keeps in memory is not taken for what an input needs."""
PARTS = ("assigned", "before", "after", "lost")


@dataclass(frozen=True)
class Outcome:
    """What opening gave: an error's words, or totals with what was said; processor time in s, most memory in bytes."""

    error: str = ""
    refused: str = ""
    totals: dict[str, int] | None = None
    said: tuple[str, ...] = ()
    cpu_s: float = 0.0
    peak_bytes: int = 0


def recordings() -> list[Path]:
    """The smallest folders, or single files, that are recordings by themselves."""
    found = set()
    for root in SAMPLES:
        for file in sorted(path for path in root.rglob("*") if path.is_file()):
            if file.suffix == ".md" or file.name.startswith("EXPECTED") or "empty" in file.parts:
                continue
            job = [
                folder
                for folder in file.parents
                if folder.name.endswith(("_ascend_pt", "_ascend_ms")) or folder.name[:5] == "PROF_"
            ]
            beside = [other for other in file.parent.iterdir() if ".json" in other.name]
            if job:
                found.add(job[-1])
            elif len(beside) < 8 and b'"traceEvents"' in unpacked(file.read_bytes()):
                found.add(file)
            else:
                found.add(file.parent)
    return sorted(path for path in found if path.is_file() or not any(other in path.parents for other in found))


def unpacked(content: bytes) -> bytes:
    """What a file holds."""
    return gzip.decompress(content) if content[:2] == _damages.GZIP else content


def thinned(name: str, content: bytes) -> bytes:
    """A large sample with fewer events or rows, itself a recording that could be."""
    zipped, text = content[:2] == _damages.GZIP, unpacked(content)
    if len(text) < MANY_BYTES or content[:16] == _damages.SQLITE:
        return content
    if name.endswith(".csv"):
        return b"".join(text.splitlines(keepends=True)[:800])
    document = json.loads(text)
    events = document["traceEvents"] if isinstance(document, dict) and "traceEvents" in document else document
    if isinstance(events, list) and isinstance(events[0], dict):
        step = 1 + len(text) // MANY_BYTES
        events[:] = [event for index, event in enumerate(events) if index % step == 0 or event.get("ph") == "M"]
    text = json.dumps(document, indent=1 if b"\n" in text[:2000] else None).encode()
    return gzip.compress(text, compresslevel=1) if zipped else text


def files_of(recording: Path) -> dict[str, bytes]:
    """The files of a recording by their path inside it."""
    files = [recording] if recording.is_file() else sorted(path for path in recording.rglob("*") if path.is_file())
    named = [file for file in files if file.suffix != ".md"]
    return {str(file.relative_to(recording.parent)): thinned(file.name, file.read_bytes()) for file in named}


def write(place: Path, contents: dict[str, bytes]) -> None:
    """Files and nothing else in a folder."""
    shutil.rmtree(place, ignore_errors=True)
    for name, content in contents.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def opened(folder: Path) -> Outcome:
    """Open and summarize, with the time and the memory that it took."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the most memory is that from here on
    began = time.process_time()
    used = lambda: {"cpu_s": time.process_time() - began, "peak_bytes": _peak_bytes()}  # noqa: E731
    try:
        run = load(folder, cache=False)
        summary = summarize(run)
        totals = totals_of(run, summary)
        said = [f"{lost.file}: {lost.what} ({lost.count})" for lost in run.dropped]
        return Outcome(totals=totals, said=(*said, *run.notes), **used())
    except PerfkitError as error:
        return Outcome(refused=str(error), **used())
    except Exception as error:
        own = [frame for frame in traceback.extract_tb(error.__traceback__) if "/perfkit/" in frame.filename]
        place = f"{own[-1].filename.rpartition('/perfkit/')[2]}:{own[-1].lineno}" if own else "?"
        return Outcome(error=f"{type(error).__name__} at {place}: {str(error)[:200]}", **used())


def totals_of(run: Any, summary: dict[str, Any]) -> dict[str, int]:
    """What a summary counts and sums."""
    events = summary["events"]
    if sum(events[part] for part in PARTS) != events["in_file"]:
        raise AssertionError(f"events do not sum: {events}")
    found = {"ranks": summary["ranks_found"], "events": events["in_file"] - events["lost"]}
    for table in ("kernels", "collectives", "steps", "memory_blocks", "memory_curve", "losses", "step_parts"):
        if run.has(table):
            frame = run.frame(table)
            found[table] = len(frame)
            for column in frame.columns:
                if column.endswith(("duration_ns", "amount_ns", "bytes")):
                    found[f"{table}.{column}"] = int(frame[column].fillna(0).astype("object").sum())
    return found


def _peak_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("the kernel does not tell a process its most memory")


def findings(outcome: Outcome, before: Outcome, name: str, *, legal: bool) -> list[str]:
    """What is wrong with an outcome."""
    found = []
    if outcome.error:
        found.append(outcome.error)
    if outcome.cpu_s > LIMIT_S:
        found.append(f"took {outcome.cpu_s:.1f} s of the processor")
    if outcome.peak_bytes > LIMIT_BYTES:
        found.append(f"took {outcome.peak_bytes / 1e6:.0f} MB")
    if outcome.totals is not None and not legal and (changed := changes(outcome, before)):
        new = [sentence for sentence in outcome.said if sentence not in before.said]
        if not new:
            found.append(f"unsaid: {changed}")
        elif not any(Path(name).name.removesuffix(".gz") in sentence or "left out for" in sentence for sentence in new):
            found.append(f"the file is not named: {changed} {new[:2]}")
    return found


def changes(outcome: Outcome, before: Outcome) -> str:
    """The totals that differ, in words."""
    old, new = before.totals or {}, outcome.totals or {}
    names = [name for name in {**old, **new} if old.get(name, 0) != new.get(name, 0)]
    return ", ".join(f"{name} {old.get(name, 0)} -> {new.get(name, 0)}" for name in names[:4])


@dataclass
class Bench:
    """The samples in a folder of their own, and what they give undamaged, by the number of the recording."""

    folder: Path
    recordings: list[Path]
    keep: Path | None
    contents: dict[int, dict[str, bytes]]
    before: dict[int, Outcome]

    def tried(self, seed: int) -> dict[str, Any]:
        """Damage, open, judge: what one seed comes to."""
        chance = random.Random(seed)
        number, before = self.drawn(chance)
        place, contents = self.folder / str(number), self.contents[number]
        name = chance.choice([name for name in sorted(contents) if contents[name]])
        damage, content = _damages.damaged(contents[name], chance)
        (place / name).write_bytes(content)
        signal.setitimer(signal.ITIMER_PROF, LIMIT_S + 5)
        outcome = opened(place)
        signal.setitimer(signal.ITIMER_PROF, 0)
        legal = outcome.totals is not None and _damages.is_legal(name, contents[name], content)
        wrong = findings(outcome, before, name, legal=legal)
        if any("unsaid" in sentence for sentence in wrong):
            (place / name).write_bytes(_damages.with_digits_of(contents[name], content))
            legal = not changes(opened(place), before)
            wrong = findings(outcome, before, name, legal=legal)
            (place / name).write_bytes(content)
        if wrong and self.keep:
            shutil.copytree(place, self.keep / str(seed), dirs_exist_ok=True)
        (place / name).write_bytes(contents[name])
        changed = outcome.totals is not None and bool(changes(outcome, before))
        what = "refused" if outcome.refused else "same" if not changed else "legal" if legal else "told"
        of = f"{self.recordings[number].relative_to(ROOT)} {Path(name).name}"
        used = {"cpu_s": outcome.cpu_s, "peak_bytes": outcome.peak_bytes}
        return {"seed": seed, "damage": damage, "what": "finding" if wrong else what, "wrong": wrong, "of": of, **used}

    def drawn(self, chance: random.Random) -> tuple[int, Outcome]:
        """One of the recordings and what it gives; one that is refused undamaged is no choice."""
        while True:
            number = chance.randrange(len(self.recordings))
            if number not in self.before:
                self.before[number] = opened(self.folder / str(number))
            if self.before[number].totals is not None:
                return number, self.before[number]

    def batch(self, seeds: range, send: int) -> None:
        """Try seeds in a fork, a line each to the parent, and at last what the whole recordings gave."""
        code = 1
        try:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
            signal.signal(signal.SIGPROF, signal.SIG_DFL)  # which ends the process
            with os.fdopen(send, "w", encoding="utf-8") as answer:
                for seed in seeds:
                    answer.write(json.dumps(self.tried(seed)) + "\n")
                    answer.flush()
                before = {number: vars(outcome) for number, outcome in self.before.items()}
                answer.write(json.dumps({"before": before}) + "\n")
            code = 0
        finally:
            os._exit(code)

    def results(self, seeds: range) -> Iterator[dict[str, Any]]:
        """What every seed comes to; a process that dies is a finding of the seed at which it did."""
        while len(seeds):
            receive, send = os.pipe()
            child = os.fork()
            if child == 0:
                self.batch(seeds[:BATCH], send)
            os.close(send)
            done = 0
            with os.fdopen(receive, encoding="utf-8") as answer:
                for line in answer:
                    told = json.loads(line)
                    if "before" in told:
                        self.before = {int(number): Outcome(**known) for number, known in told["before"].items()}
                        continue
                    done += 1
                    yield told
            _, status = os.waitpid(child, 0)
            if status:
                how = f"the process ended with status {status}"
                yield {"seed": seeds[done], "damage": "?", "what": "finding", "wrong": [how], "of": "", "cpu_s": 0, "peak_bytes": 0}
                done += 1
            seeds = seeds[done:]


def main() -> int:
    """Try seeds and tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--keep", type=Path, help="leave the damaged recordings with findings here")
    arguments = parser.parse_args()
    known, tally, bad = recordings(), Counter[tuple[str, str]](), 0
    most_s, most_bytes = 0.0, 0
    with tempfile.TemporaryDirectory() as folder:
        contents = {number: files_of(recording) for number, recording in enumerate(known)}
        for number, files in contents.items():
            write(Path(folder) / str(number), files)
        bench = Bench(Path(folder), known, arguments.keep, contents, {})
        for told in bench.results(range(arguments.first, arguments.first + arguments.count)):
            tally[told["damage"], told["what"]] += 1
            bad += bool(told["wrong"])
            most_s, most_bytes = max(most_s, told["cpu_s"]), max(most_bytes, told["peak_bytes"])
            for sentence in told["wrong"]:
                print(f"{told['seed']} {told['damage']} {told['of']}: {sentence}", flush=True)
    for damage in sorted({damage for damage, _ in tally}):
        print(
            f"{damage:16}" + "".join(f"{tally[damage, what]:>6} {what}" for what in ("same", "told", "refused", "legal", "finding"))
        )
    print(f"{arguments.count} damaged inputs, {bad} with findings; at most {most_s:.2f} s of CPU and {most_bytes / 1e6:.0f} MB")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
