"""Fuzz every reader: bytes led by coverage (atheris), or by chance where atheris does not install, until a time is over.

example: python -m benchmarks.fuzz.fuzz --seconds 60 --found found/

Every reader gets the same processor time. Each target of `tests/fuzz/targets.py` runs in a process of its own with limits of memory
and time, so that one that takes the machine is found and not suffered; the processes are forks of one that has imported and
instrumented all of perfkit, which takes longer than many a target needs. Prints executions and what was found, a line a target, and
the sum; writes the shortest input of each kind of finding to `--found`, from where it goes to `tests/fuzz/found/` once it is
mended. Ends with 1 if anything was found.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import random
import resource
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MAX_BYTES = 2**31
SLOW_S = 10.0
"""Processor time after which an input of at most 16 KB is found to be slow."""
WALL = 60
"""Seconds of the clock that a second of processor time may take beside others."""
LEN = 20_000
TOKENS = (
    b"0",
    b"-1",
    b"1e999",
    b"nan",
    b"\xff",
    b"\0",
    b"\n",
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"18446744073709551616",
    b"\xe2\x80\xa8",
)


@dataclass
class Session:
    """What happened to one target; told to a file each second, since the engine ends the process as it likes."""

    report: Path
    end_s: float
    """Processor time of this process at which it ends."""
    executions: int = 0
    found: dict[str, bytes] = field(default_factory=dict)
    told_s: float = 0.0

    def run(self, check: Callable[[bytes], None], data: bytes) -> None:
        """Try one input."""
        self.executions += 1
        begin_s = time.process_time()
        try:
            check(data)
        except Exception as error:  # what this looks for
            self.keep(f"{type(error).__name__} at {place_of(error)}", data)
        now_s = time.process_time()
        if now_s - begin_s > SLOW_S:
            self.keep("slow", data)
        if now_s > self.end_s:
            self.tell()
            os._exit(0)
        if now_s - self.told_s > 1:
            self.tell()

    def keep(self, what: str, data: bytes) -> None:
        """The shortest input of each kind."""
        if what not in self.found or len(data) < len(self.found[what]):
            self.found[what] = data
            self.tell()

    def tell(self) -> None:
        """Write what is known."""
        self.told_s = time.process_time()
        found = {what: data.hex() for what, data in self.found.items()}
        self.report.write_text(json.dumps({"executions": self.executions, "found": found}))


def place_of(error: BaseException) -> str:
    """The innermost line of perfkit on the way to an error."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if "/perfkit/" in frame.filename]
    return f"{own[-1].filename.rpartition('/perfkit/')[2]}:{own[-1].lineno}" if own else "the harness"


def by_chance(session: Session, check: Callable[[bytes], None], seeds: Sequence[bytes]) -> None:
    """Samples with cuts, copies, flipped bits and tokens."""
    chance = random.Random(time.time_ns())
    while True:
        data = bytearray(chance.choice(seeds))
        for _ in range(chance.randint(1, 8)):
            at, length = chance.randint(0, len(data)), chance.randint(0, 64)
            edit = chance.randrange(4)
            if edit == 0:
                del data[at : at + length]
            elif edit == 1:
                data[at:at] = data[chance.randint(0, len(data)) :][:length]
            elif edit == 2 and at < len(data):
                data[at] ^= 1 << chance.randrange(8)
            else:
                data[at:at] = chance.choice(TOKENS)
        session.run(check, bytes(data[:LEN]))


def engine() -> tuple[Any, Any]:
    """atheris, None where it is not installed, and the module of targets, instrumented if it is."""
    try:
        import atheris
    except ImportError:
        from tests.fuzz import targets

        return None, targets
    with atheris.instrument_imports(include=["perfkit"], enable_loader_override=False):
        from tests.fuzz import targets
    return atheris, targets


def one(atheris: Any, targets: Any, target: Any, seconds: float, report: Path) -> None:
    """Fuzz a target in this process until it has had its time."""
    sys.stdout = sys.stderr = report.with_suffix(".said").open("w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), 1)
    os.dup2(sys.stderr.fileno(), 2)
    resource.setrlimit(resource.RLIMIT_AS, (4 * MAX_BYTES, 4 * MAX_BYTES))
    session = Session(report, time.process_time() + seconds)
    check = lambda data: targets.check(target, data)  # noqa: E731
    if atheris is None:
        by_chance(session, check, target.seeds)
        return
    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(target.seeds):
            (Path(corpus) / str(number)).write_bytes(seed)
        options = [f"-max_len={LEN}", "-rss_limit_mb=4000", "-timeout=600", "-verbosity=0"]
        atheris.Setup([sys.argv[0], *options, "-print_final_stats=0", corpus], lambda data: session.run(check, data))
        atheris.Fuzz()


def main() -> int:
    """Fuzz the targets one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="of processor time, for each target")
    parser.add_argument("--target", nargs="*", help="only these")
    parser.add_argument("--found", type=Path, default=Path("found"))
    arguments = parser.parse_args()
    atheris, targets = engine()
    total, num_found = 0, 0
    for target in targets.targets():
        if arguments.target and target.name not in arguments.target:
            continue
        executions, found = of_process(atheris, targets, target, arguments.seconds)
        total += executions
        num_found += len(found)
        print(f"{target.name:24} {executions:>10,} executions, {len(found)} found", flush=True)
        for what, data in found.items():
            arguments.found.mkdir(parents=True, exist_ok=True)
            path = arguments.found / f"{target.name}.{hashlib.sha256(data).hexdigest()[:8]}"
            path.write_bytes(data)
            print(f"    {what} ({len(data)} bytes in {path})", flush=True)
    print(f"{total:,} executions, {num_found} found")
    return 1 if num_found else 0


def of_process(atheris: Any, targets: Any, target: Any, seconds: float) -> tuple[int, dict[str, bytes]]:
    """Executions and findings of one target, in a fork of this process."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        process = multiprocessing.get_context("fork").Process(target=one, args=(atheris, targets, target, seconds, report))
        process.start()
        process.join(WALL * seconds + 120)
        said = f"the process ended with {process.exitcode}" if process.exitcode else ""
        if process.is_alive():
            process.kill()
            process.join()
            said = "the process did not end"
        told = report.with_suffix(".said")
        last = told.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:] if told.exists() else []
        known = json.loads(report.read_text()) if report.exists() else {"executions": 0, "found": {}}
        found = {what: bytes.fromhex(data) for what, data in known["found"].items()}
        return known["executions"], found | ({": ".join([said, *last]): b""} if said else {})


if __name__ == "__main__":
    sys.exit(main())
