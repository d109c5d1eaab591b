"""Fuzz every reader: bytes led by coverage (atheris), or by chance where atheris does not install, until a time is over.

example: python -m benchmarks.fuzz.fuzz --seconds 60 --found found/

Each target of `tests/fuzz/targets.py` runs in a process of its own with limits of memory and time, so that one that takes the
machine is found and not suffered. Prints executions and what was found, a line a target, and the sum; writes the shortest input of
each kind of finding to `--found`, from where it goes to `tests/fuzz/found/` once it is mended. Ends with 1 if anything was found.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

MAX_BYTES = 2**31
SLOW_S = 10.0
"""Processor time after which an input of at most 16 KB is found to be slow."""
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

    name: str
    report: Path
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
        if time.process_time() - begin_s > SLOW_S:
            self.keep("slow", data)
        if time.monotonic() - self.told_s > 1:
            self.tell()

    def keep(self, what: str, data: bytes) -> None:
        """The shortest input of each kind."""
        if what not in self.found or len(data) < len(self.found[what]):
            self.found[what] = data
            self.tell()

    def tell(self) -> None:
        """Write what is known."""
        self.told_s = time.monotonic()
        found = {what: data.hex() for what, data in self.found.items()}
        self.report.write_text(json.dumps({"executions": self.executions, "found": found}))


def place_of(error: BaseException) -> str:
    """The innermost line of perfkit on the way to an error."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if "/perfkit/" in frame.filename]
    return f"{own[-1].filename.rpartition('/perfkit/')[2]}:{own[-1].lineno}" if own else "the harness"


def by_chance(session: Session, check: Callable[[bytes], None], seeds: list[bytes], seconds: float) -> None:
    """Samples with cuts, copies, flipped bits and tokens."""
    chance, end = random.Random(time.time_ns()), time.monotonic() + seconds
    while time.monotonic() < end:
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
    session.tell()


def one(name: str, seconds: float, report: Path) -> None:
    """Fuzz a target in this process."""
    resource.setrlimit(resource.RLIMIT_AS, (4 * MAX_BYTES, 4 * MAX_BYTES))
    try:
        import atheris
    except ImportError:
        atheris = None
    if atheris is not None:
        with atheris.instrument_imports(include=["perfkit"], enable_loader_override=False):
            from tests.fuzz import targets
    else:
        from tests.fuzz import targets
    [target] = [target for target in targets.targets() if target.name == name]
    session = Session(name, report)
    check = lambda data: targets.check(target, data)  # noqa: E731
    if atheris is None:
        by_chance(session, check, list(target.seeds), seconds)
        return
    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(target.seeds):
            (Path(corpus) / str(number)).write_bytes(seed)
        options = [f"-max_total_time={int(seconds)}", f"-max_len={LEN}", "-rss_limit_mb=4000", "-timeout=120", "-verbosity=0"]
        atheris.Setup([sys.argv[0], *options, "-print_final_stats=0", corpus], lambda data: session.run(check, data))
        atheris.Fuzz()


def main() -> int:
    """Fuzz the targets one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each target")
    parser.add_argument("--target", nargs="*", help="only these")
    parser.add_argument("--found", type=Path, default=Path("found"))
    parser.add_argument("--one", nargs=2, metavar=("TARGET", "REPORT"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        one(arguments.one[0], arguments.seconds, Path(arguments.one[1]))
        return 0
    from tests.fuzz.targets import targets

    total, num_found = 0, 0
    for target in targets():
        if arguments.target and target.name not in arguments.target:
            continue
        executions, found = of_process(target.name, arguments.seconds)
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


def of_process(name: str, seconds: float) -> tuple[int, dict[str, bytes]]:
    """Executions and findings of one target."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "benchmarks.fuzz.fuzz", "--seconds", str(seconds), "--one", name, str(report)]
        try:
            done = subprocess.run(command, capture_output=True, timeout=seconds * 2 + 120, check=False)
            said = done.stderr[-2000:].decode(errors="replace") if done.returncode else ""
        except subprocess.TimeoutExpired:
            said = "it did not end"
        known = json.loads(report.read_text()) if report.exists() else {"executions": 0, "found": {}}
        found = {what: bytes.fromhex(data) for what, data in known["found"].items()}
        return known["executions"], found | ({f"the process ended: {said.strip().splitlines()[-1]}": b""} if said else {})


if __name__ == "__main__":
    sys.exit(main())
