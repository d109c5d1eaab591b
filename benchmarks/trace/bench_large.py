"""Large inputs: CPU and wall seconds and peak memory of a whole process, imports included, made by repeating the bundled samples.

Each line is one fresh process; `imports` is the part that every one of them has. Files are made in a temporary folder.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import shutil
import sys
import tempfile
import time
from decimal import Decimal
from pathlib import Path

from perfkit.core.resources import data_folder
from perfkit.core.units import MIB, format_bytes

SAMPLES = data_folder() / "traces"
SHIFT_US = 100_000_000


def repeat_kineto(target: Path, num_bytes: int) -> None:
    """The bundled Kineto trace again and again, each time later, until the file has `num_bytes`."""
    trace = json.loads(gzip.decompress(next((SAMPLES / "kineto_resnet").glob("*.json.gz")).read_bytes()), parse_float=Decimal)
    events = trace.pop("traceEvents")
    with target.open("w") as out:
        out.write(json.dumps(trace, default=float)[:-1] + ', "traceEvents": [')
        turn = 0
        while out.tell() < num_bytes:
            shifted = ({**event, "ts": float(event["ts"]) + turn * SHIFT_US} if "ts" in event else event for event in events)
            out.write((",\n" if turn else "") + ",\n".join(json.dumps(event, default=float) for event in shifted))
            turn += 1
        out.write("]}")


def repeat_kernels(target: Path, num_bytes: int) -> None:
    """A rank folder whose kernel_details.csv is the bundled one again and again."""
    source = next(SAMPLES.glob("torch_npu_2rank/rank0*"))
    shutil.copytree(source, target / source.name)
    table = next((target / source.name).rglob("kernel_details.csv"))
    table.with_name("step_trace_time.csv").unlink()
    with table.open(newline="") as stream:
        header, *rows = list(csv.reader(stream))
    start = header.index("Start Time(us)")
    with table.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(header)
        turn = 0
        while out.tell() < num_bytes:
            writer.writerows([*row[:start], str(Decimal(row[start].strip()) + turn * SHIFT_US), *row[start + 1 :]] for row in rows)
            turn += 1


def measure(name: str, code: str) -> None:
    """Run `code` in a fresh Python process and print what it took."""
    begin = time.perf_counter()
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", code], os.environ)
    _, status, used = os.wait4(pid, 0)
    took = (
        f"{used.ru_utime + used.ru_stime:5.2f} cpu-s, {time.perf_counter() - begin:5.2f} s, {format_bytes(used.ru_maxrss * 1024)}"
    )
    print(f"{name:45} {took if status == 0 else 'failed'}", flush=True)


INTERVALS = """
import numpy as np, time
from perfkit.record.overlap import overlap_ns, union
random = np.random.default_rng(0)
starts = random.integers(0, 10**12, (2, 10**6))
ends = starts + random.integers(0, 10**6, (2, 10**6))
begin = time.process_time()
overlap_ns(union(starts[0], ends[0]), union(starts[1], ends[1]))
print(f"  of it the overlap: {time.process_time() - begin:.3f} s")
"""

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        os.environ["PERFKIT_CACHE"] = str(work / "cache")
        repeat_kineto(work / "rank0.json", 112 * MIB)
        repeat_kernels(work / "ranks", 129 * 10**6)
        measure("imports", "import pandas, polars, msgspec, perfkit.record.load")
        kineto = f"import perfkit; perfkit.load({str(work / 'rank0.json')!r}, cache={{}}).steps()"
        measure("Kineto, 112 MiB: load and steps", kineto.format(False))
        measure("the same, and keep it", kineto.format(True))
        measure("the same, from the cache", kineto.format(True))
        repeat_kineto(work / "large.json", 1024 * MIB)
        measure("Kineto, 1 GiB, on all cores", kineto.replace("rank0", "large").format(False))
        measure("kernel_details.csv, 129 MB", f"import perfkit; perfkit.load({str(work / 'ranks')!r}, cache=False)")
        measure("overlap of two times 1M intervals", INTERVALS)
