"""Windows of a timeline of the size of a 20 GB trace: CPU seconds of a window of 4 lanes and 2,000 pixels, and the resident memory.

The run is made rank by rank as its cache would be (4 streams of 1M events each; 112 MB of Kineto text are 457,184 events, so that
20 ranks with 80M events are 19.6 GB); the windows are then opened in a fresh process, at every zoom and at random places.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from perfkit.core.run import LazyTable, LazyTables, Run
from perfkit.core.units import MIB, format_bytes
from perfkit.record import tiles

EVENTS_PER_STREAM = 1_000_000
STREAMS = 4
EPOCH_NS = 1_736_408_883_704_643_212
BYTES_PER_EVENT = 112 * MIB / 457_184

WINDOWS = """
import random, resource, statistics, sys
from pathlib import Path
sys.path.insert(0, {here!r})
from benchmarks.trace.bench_tiles import run_of
from perfkit.record import tiles
def cpu_s():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
run = run_of({ranks})
lanes = tiles.lanes(run)
begin, end = min(lane.start_ns for lane in lanes), max(lane.end_ns for lane in lanes)
choose, took = random.Random(1), []
for _ in range(200):
    chosen = choose.sample(lanes, 4)
    length = int((end - begin) / 2 ** choose.uniform(0, 24))
    start = choose.randint(begin, end - length)
    before = cpu_s()
    frame = tiles.window(run, chosen, start, start + length, 2000)
    took.append(cpu_s() - before)
    assert frame.groupby("lane").size().max() <= 4000 or frame.empty
took = took[1:]
quantiles = statistics.quantiles(took, n=20)
peak_kib = next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(f"a window: median {{1000 * statistics.median(took):.0f}} ms, 95 % {{1000 * quantiles[-1]:.0f}} ms, largest "
      f"{{1000 * max(took):.0f}} ms of CPU; resident {{peak_kib / 1024:.0f}} MiB at most")
"""


def kernels(rank: int) -> pd.DataFrame:
    """The kernels of a rank: four streams of short and of long ones, with gaps."""
    random = np.random.default_rng(rank)
    rows = EVENTS_PER_STREAM * STREAMS
    gaps, durations = random.integers(0, 3_000, rows), random.exponential(20_000, rows).astype(np.int64)
    starts = np.concatenate([EPOCH_NS + np.cumsum(part) for part in np.split(gaps + np.roll(durations, 1), STREAMS)])
    names = pd.Categorical.from_codes(random.integers(0, 300, rows), categories=pd.Index([f"kernel_{name}" for name in range(300)]))
    kinds = pd.Categorical.from_codes((random.random(rows) < 0.1).astype(int), categories=pd.Index(["computing", "communication"]))
    columns = {
        "rank": np.full(rows, rank),
        "name": names,
        "kind": kinds,
        "stream": pd.Categorical.from_codes(
            np.repeat(np.arange(STREAMS), EVENTS_PER_STREAM), categories=pd.Index([str(stream) for stream in range(STREAMS)])
        ),
        "start_ns": pd.array(starts, dtype="Int64"),
        "duration_ns": durations,
    }
    return pd.DataFrame(columns)


def run_of(ranks: int) -> Run:
    """A kept run whose kernels are made when they are asked for."""

    def read(wanted: object, columns: object) -> pd.DataFrame:
        return kernels(next(iter(wanted)))[list(columns)]  # type: ignore[call-overload]

    table = LazyTable(ranks=frozenset(range(ranks)), num_rows=ranks * STREAMS * EVENTS_PER_STREAM, read=read)
    return Run(name="large", kind="measured", format="made", tables=LazyTables({"kernels": table}), cache_key=f"large{ranks}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=4)
    ranks = parser.parse_args().ranks
    with tempfile.TemporaryDirectory() as name:
        os.environ["PERFKIT_CACHE"] = name
        for rank in range(ranks):
            tiles.lanes(run_of(ranks), ranks=[rank])
        events = ranks * STREAMS * EVENTS_PER_STREAM
        on_disk = sum(path.stat().st_size for path in Path(name).rglob("*.parquet"))
        text = f"{events:,} events, as in {format_bytes(events * BYTES_PER_EVENT)} of Kineto text"
        print(f"{text}: tiles of {format_bytes(on_disk)}", flush=True)
        code = WINDOWS.format(here=str(Path(__file__).parents[2]), ranks=ranks)
        pid = os.posix_spawn(sys.executable, [sys.executable, "-c", code], os.environ)
        sys.exit(os.waitstatus_to_exitcode(os.wait4(pid, 0)[1]))
