"""perfkit and its peers on the same inputs: one table of CPU seconds and peak memory of whole processes, imports included.

Every peer is installed into an environment of its own (`--environments FOLDER` keeps them); one that cannot be installed, or fails,
is reported as such. Inputs are the bundled samples and larger ones made by repeating them. CPU is user and system time of a process
and its children, memory the largest resident size of one of them: wall time says little on a machine that is shared.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.trace.bench_large import SAMPLES, repeat_kernels, repeat_kineto
from perfkit.core.units import MIB

PEERS = {
    "HTA": ("HolisticTraceAnalysis", "pandas<3"),  # 0.5.0 ends with a TypeError under pandas 3
    "msprof-analyze": ("msprof-analyze",),
    "pandas": ("pandas",),
    "duckdb": ("duckdb",),
}
LIMIT_S = 3600
STEPS = 12
_TIMED_OUT = 124  # what `timeout` ends with
_GRACE_S = 5
_PR_SET_CHILD_SUBREAPER = 36  # Linux: processes left behind become children of this one, whose use is counted

PERFKIT = "import perfkit; perfkit.load({path!r}, cache={cache}).steps()"
HTA = (
    "from hta.trace_analysis import TraceAnalysis; "
    "TraceAnalysis(trace_files={{0: {path!r}}}, trace_dir='').get_temporal_breakdown(visualize=False)"
)
PANDAS_JSON = """
import gzip, json, pandas
opened = gzip.open({path!r}) if {path!r}.endswith('.gz') else open({path!r}, 'rb')
events = pandas.DataFrame([event for event in json.load(opened)['traceEvents'] if event.get('ph') == 'X'])
print(events.groupby('cat')['dur'].agg(['size', 'sum']))
"""
DUCKDB_JSON = """
import duckdb
read = "read_json({path!r}, columns={{'traceEvents': 'JSON[]'}}, maximum_object_size=2000000000)"
events = f"SELECT unnest(traceEvents) AS e FROM {{read}}"
spans = f"SELECT e->>'cat' AS cat, (e->>'dur')::DECIMAL(18, 3) AS dur FROM ({{events}}) WHERE e->>'ph' = 'X'"
print(duckdb.sql(f"SELECT cat, count(*), sum(dur) FROM ({{spans}}) GROUP BY 1"))
"""
PANDAS_CSV = """
import pandas
print(pandas.read_csv({path!r}, low_memory=False).groupby('Accelerator Core')['Duration(us)'].agg(['size', 'sum']))
"""


@dataclass(frozen=True, slots=True)
class Work:
    """One tool at one input; `command` is Python code, or arguments of a program of the tool's environment."""

    task: str
    tool: str
    command: str | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Used:
    """What a process took, or why there is nothing to say."""

    cpu_s: float = 0.0
    peak_bytes: int = 0
    failure: str = ""


def many_ranks(target: Path, ranks: int) -> int:
    """Folders of many ranks with text summaries only, those of the bundled two ranks again and again; returns their bytes.

    Every rank has `STEPS` steps of five collectives and their links, about 170 KB as two steps of a real layout have.
    """
    sources = sorted(SAMPLES.glob("torch_npu_2rank/rank*"))
    repeated = [{file.name: _repeated_steps(file) for file in _summaries(source)} for source in sources]
    for rank in range(ranks):
        source = sources[rank % len(sources)]
        folder = target / f"rank{rank}_ascend_pt"
        shutil.copytree(source, folder, ignore=shutil.ignore_patterns("kernel_details.csv", "*memory*", "trace_view*", "*module*"))
        for file in _summaries(folder):
            file.write_text(repeated[rank % len(sources)][file.name])
        for old in folder.glob("profiler_info*.json"):
            info = json.loads(old.read_text())
            old.unlink()
            (folder / f"profiler_info_{rank}.json").write_text(json.dumps(info | {"rank_id": rank}))
    return sum(file.stat().st_size for file in target.rglob("*") if file.is_file())


def _summaries(folder: Path) -> list[Path]:
    names = ("step_trace_time.csv", "communication.json", "communication_matrix.json")
    return [file for file in folder.rglob("*") if file.name in names]


def _repeated_steps(file: Path) -> str:
    """The one step of a summary as `STEPS` steps."""
    if file.suffix == ".csv":
        header, row = file.read_text().splitlines()[:2]
        first, _, rest = row.partition(",")
        return "\n".join([header, *(f"{int(first) + step},{rest}" for step in range(STEPS))]) + "\n"
    (first, content), *_ = json.loads(file.read_text()).items()
    return json.dumps({f"step{int(first.removeprefix('step')) + step}": content for step in range(STEPS)})


def works(folder: Path, ranks: int, num_bytes: int) -> Iterator[Work]:
    """Make the inputs in `folder` and say what each tool does with them."""
    sample = str(next((SAMPLES / "kineto_resnet").glob("*.json.gz")))
    large = folder / "rank0.json"
    repeat_kineto(large, num_bytes)
    for task, path in (("Kineto, bundled sample", sample), (f"Kineto, {num_bytes // MIB} MiB", str(large))):
        yield Work(task, "perfkit", PERFKIT.format(path=path, cache=False))
        yield Work(task, "HTA", HTA.format(path=path))
        yield Work(task, "pandas", PANDAS_JSON.format(path=path))
        yield Work(task, "duckdb", DUCKDB_JSON.format(path=path))
    task = f"Kineto, {num_bytes // MIB} MiB, opened again"
    perfkit = PERFKIT.format(path=str(large), cache=True)
    subprocess.run([sys.executable, "-c", perfkit], check=True, capture_output=True)
    yield Work(task, "perfkit", perfkit)
    kernels = folder / "kernels"
    repeat_kernels(kernels, num_bytes)
    table = str(next(kernels.rglob("kernel_details.csv")))
    task = f"kernel_details.csv, {num_bytes // MIB} MiB"
    yield Work(task, "perfkit", PERFKIT.format(path=str(kernels), cache=False))
    yield Work(task, "pandas", PANDAS_CSV.format(path=table))
    yield Work(task, "duckdb", f"import duckdb; print(duckdb.sql({_core_sums(table)!r}))")
    many = folder / "ranks"
    task = f"{ranks:,} ranks, {many_ranks(many, ranks) / 1e6:.0f} MB of text summaries"
    yield Work(task, "perfkit", PERFKIT.format(path=str(many), cache=False))
    yield Work(task, "msprof-analyze", ("msprof-analyze", "cluster", "-d", str(many), "-m", "all", "-o", str(folder / "out")))


def _core_sums(table: str) -> str:
    return f"""SELECT "Accelerator Core", count(*), sum("Duration(us)") FROM read_csv('{table}') GROUP BY 1"""


def environment(peer: str, root: Path) -> str:
    """Make the environment of a peer unless it is there; returns why that failed, or nothing."""
    folder = root / PEERS[peer][0]
    if (folder / "installed").exists():
        return ""
    venv.create(folder, with_pip=True, clear=True)
    done = subprocess.run(
        [str(folder / "bin" / "pip"), "install", "--quiet", *PEERS[peer]], capture_output=True, text=True, check=False
    )
    if done.returncode:
        return "could not be installed: " + (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    (folder / "installed").touch()
    return ""


def measure(work: Work, root: Path, log: Path, limit_s: int = LIMIT_S) -> Used:
    """Run one tool in a fresh process; one that takes longer than the limit is ended with its children."""
    python = sys.executable
    if work.tool != "perfkit":
        if failure := environment(work.tool, root):
            return Used(failure=failure)
        python = str(root / PEERS[work.tool][0] / "bin" / "python")
    arguments = [python, "-c", work.command] if isinstance(work.command, str) else [str(Path(python).parent / work.command[0])]
    arguments += [] if isinstance(work.command, str) else list(work.command[1:])
    with log.open("wb") as output:
        child = subprocess.Popen(
            ["timeout", str(limit_s), *arguments], stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=log.parent
        )
        overdue = threading.Timer(limit_s + _GRACE_S, _kill_group, (child.pid,))
        overdue.start()
        _, status, used = os.wait4(child.pid, 0)
        cpu_s, peak_kib = used.ru_utime + used.ru_stime, used.ru_maxrss
        while True:  # processes that outlived the one that started them
            try:
                _, _, used = os.wait4(-1, 0)
            except ChildProcessError:
                break
            cpu_s, peak_kib = cpu_s + used.ru_utime + used.ru_stime, max(peak_kib, used.ru_maxrss)
        overdue.cancel()
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode in (_TIMED_OUT, -signal.SIGKILL):
        return Used(cpu_s, peak_kib * 1024, f"no answer in {limit_s} s")
    if child.returncode:
        lines = log.read_text(errors="replace").strip().splitlines()
        return Used(cpu_s, peak_kib * 1024, f"failed ({child.returncode}): {lines[-1][:120] if lines else 'no output'}")
    return Used(cpu_s, peak_kib * 1024)


def _kill_group(leader: int) -> None:
    """End what ignored the first signal of `timeout`, which leads a group of its own, or was left running by a tool."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def table(rows: list[tuple[Work, Used]]) -> str:
    """The results as Markdown; ratios compare with perfkit at the same task."""
    lines = ["| work | tool | CPU s | peak MB | CPU ÷ perfkit | memory ÷ perfkit |", "|---|---|---|---|---|---|"]
    base: dict[str, Used] = {work.task: used for work, used in rows if work.tool == "perfkit"}
    for work, used in rows:
        if used.failure:
            lines.append(f"| {work.task} | {work.tool} | {used.failure} | | | |")
            continue
        own = base[work.task]
        ratios = f"{used.cpu_s / own.cpu_s:.1f} | {used.peak_bytes / own.peak_bytes:.1f}" if own.cpu_s else " | "
        lines.append(f"| {work.task} | {work.tool} | {used.cpu_s:.2f} | {used.peak_bytes / 1e6:.0f} | {ratios} |")
    return "\n".join(lines)


def reap_orphans() -> None:
    """Count what tools leave running: their orphans become children of this process."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--environments", type=Path, help="where the peers' environments are kept; by default nowhere")
    parser.add_argument("--ranks", type=int, default=64, help="msprof-analyze takes minutes for 1024")
    parser.add_argument("--mib", type=int, default=112)
    parser.add_argument("--only", default="", help="only tasks whose name contains this")
    options = parser.parse_args()
    reap_orphans()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["PERFKIT_CACHE"] = str(folder / "cache")
        os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])
        root = options.environments or folder / "environments"
        rows: list[tuple[Work, Used]] = []
        for work in works(folder, options.ranks, options.mib * MIB):
            if options.only not in work.task:
                continue
            rows.append((work, measure(work, root, folder / "log")))
            print(f"{work.task}, {work.tool}: {rows[-1][1]}", file=sys.stderr, flush=True)
        print(table(rows))


if __name__ == "__main__":
    main()
