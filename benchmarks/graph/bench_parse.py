"""Time and memory of reading and judging graph files: a real slim one, and one of 50 MB made by repeating its body.

    python -m benchmarks.graph.bench_parse [--megabytes 50]

Limits: 0.3 s for the 300 kB file; 15 s and 500 MB for the large one. Each runs in a process of its own, whose peak memory is read.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REAL = Path(__file__).resolve().parents[2] / "tests/data/ir/dp2tp4_allgather_mismatch/21_validate_0082.ir"
LIMITS = {"real": (0.3, 500e6), "large": (15.0, 500e6)}
_ID = re.compile(r"%(\d+)(?=[(,) \[])")
_UNIQUE = re.compile(r'unique_id: "(\d+)"')


def write_large(path: Path, num_bytes: int) -> None:
    """Repeat the operators of the real file with shifted ids and layer numbers until `path` has `num_bytes`."""
    head, _, rest = REAL.read_text(encoding="utf-8").partition("() {\n")
    body, _, tail = rest.rpartition("  Return(")
    step = body.count(" = ")
    with path.open("w", encoding="utf-8") as out:
        out.write(head + "() {\n")
        for repeat in range(num_bytes // len(body) + 1):
            text = _ID.sub(lambda found, by=repeat * step: f"%{int(found[1]) + by}", body)
            text = _UNIQUE.sub(lambda found, by=repeat * 100_000: f'unique_id: "{int(found[1]) + by}"', text)
            for layer in (0, 1):
                text = text.replace(f"layers-CellList/{layer}-", f"layers-CellList/L{2 * repeat + layer}-")
            out.write(text.replace("CellList/L", "CellList/"))
        out.write("  Return(" + tail)


def measure(path: Path) -> None:
    """Read `path` and print what it took, as JSON."""
    from perfkit.explain.graph import read_graph  # noqa: PLC0415  (imports are not measured)

    before_s, before_cpu_s = time.perf_counter(), time.process_time()
    (analysis,) = read_graph(path).files.values()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    status = Path("/proc/self/status")
    found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text()) if status.exists() else None
    result = {
        "operators": len(analysis.file.nodes()),
        "communications": len(analysis.communications),
        "wall_s": round(time.perf_counter() - before_s, 3),
        "cpu_s": round(time.process_time() - before_cpu_s, 3),
        "peak_bytes": max(peak, int(found[1]) * 1024 if found else 0),
    }
    print(json.dumps(result))


def main() -> int:
    """Run both cases; the exit code is 1 if one is over its limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=50)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure)
        return 0
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        large = Path(folder) / "large.ir"
        write_large(large, arguments.megabytes * 10**6)
        for name, path in (("real", REAL), ("large", large)):
            command = [sys.executable, "-m", "benchmarks.graph.bench_parse", "--measure", str(path)]
            result = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            seconds, size = LIMITS[name]
            over = result["cpu_s"] > seconds or result["peak_bytes"] > size
            failed |= over
            print(f"{name}: {path.stat().st_size / 1e6:.1f} MB {result} limit {seconds} s {'OVER' if over else 'ok'}")
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
