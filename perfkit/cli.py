"""The command line: parse, call, print. Every command is one call into the package.

Exit codes: 0 done, 2 the input or the call is wrong. Errors go to standard error with all problems; a traceback shows only with
`--debug`.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from perfkit.errors import PerfkitError

Command = Callable[[argparse.Namespace], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; gives the exit code."""
    arguments = _parser().parse_args(argv)
    command: Command = arguments.command
    try:
        return command(arguments)
    except PerfkitError as error:
        if arguments.debug:
            traceback.print_exc()
        print(f"perfkit: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except Exception as error:
        if arguments.debug:
            raise
        print(
            f"perfkit: unexpected {type(error).__name__}: {error}; this is a bug, run again with --debug to see where",
            file=sys.stderr,
        )
        return 2


def _parser() -> argparse.ArgumentParser:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser = argparse.ArgumentParser(prog="perfkit", description="Predict, measure and tune the training of large models.")
    from perfkit import __version__  # noqa: PLC0415  (the package, not one of its modules)

    parser.add_argument("--version", action="version", version=f"perfkit {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, add in _COMMANDS.items():
        doc = (add.__doc__ or "").strip()
        summary, _, example = doc.partition("\n")
        sub = commands.add_parser(
            name,
            parents=[shared],
            help=summary,
            description=summary,
            epilog=example.strip() or None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        add(sub)
    return parser


def _add_summary(parser: argparse.ArgumentParser) -> None:
    """Per rank and step: where the time went.

    example: perfkit summary profile/ --step 50
    """
    parser.add_argument("run", metavar="RUN", help="a folder or file in any known format")
    parser.add_argument("--step", type=int, help="only this step")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(command=_summary)


def _summary(arguments: argparse.Namespace) -> int:
    from perfkit.trace.load import load  # noqa: PLC0415  (engines load only when a command needs them)
    from perfkit.trace.summary import summarize  # noqa: PLC0415

    with _Progress(sys.stderr) as progress:
        summary = summarize(load(arguments.run, progress=progress), step=arguments.step)
    if arguments.json:
        print(json.dumps(summary, ensure_ascii=False))
    else:
        from perfkit._tables import print_summary  # noqa: PLC0415

        print_summary(summary, sys.stdout)
    return 0


def _add_serve(parser: argparse.ArgumentParser) -> None:
    """Serve the guided pages as an app on 127.0.0.1, or open them in JupyterLab.

    example: perfkit serve my-project --port 8866
    """
    parser.add_argument("folder", metavar="FOLDER", nargs="?", default=".", help="the tuning project (default: here)")
    parser.add_argument("--port", type=int, default=8866, help="port (default: 8866)")
    parser.add_argument("--lab", action="store_true", help="open JupyterLab, with the code visible")
    parser.add_argument("--read-only", action="store_true", help="never write to the project")
    parser.set_defaults(command=_serve)


def _serve(arguments: argparse.Namespace) -> int:
    from perfkit.app.server import serve  # noqa: PLC0415

    serve(arguments.folder, port=arguments.port, lab=arguments.lab, read_only=arguments.read_only)
    return 0


def _add_demo(parser: argparse.ArgumentParser) -> None:
    """Write the sample project: six rounds of tuning Llama2-13B, with real configs, a profile and a log.

    example: perfkit demo my-demo && perfkit serve my-demo
    """
    parser.add_argument(
        "folder", metavar="FOLDER", nargs="?", default="perfkit-demo", help="where to write it (default: perfkit-demo)"
    )
    parser.set_defaults(command=_demo)


def _demo(arguments: argparse.Namespace) -> int:
    from perfkit.sample import demo  # noqa: PLC0415

    project = demo(arguments.folder)
    print(f"sample project written to {project.folder}; look at it with: perfkit serve {arguments.folder}")
    return 0


def _add_schedule(parser: argparse.ArgumentParser) -> None:
    """Simulate pipeline schedules exactly: makespan, bubble, activations in flight, critical path.

    example: perfkit schedule data/plans/schedules_4_stages.json --json
    """
    parser.add_argument("case", metavar="CASE", help="a perfkit.plans.schedules/1 file; - is standard input")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(command=_schedule)


def _schedule(arguments: argparse.Namespace) -> int:
    from perfkit.plans.case_file import read_schedules  # noqa: PLC0415
    from perfkit.plans.schedule import simulate_schedule  # noqa: PLC0415

    results = [simulate_schedule(case) for case in read_schedules(arguments.case)]
    if arguments.json:
        print(json.dumps([result.to_dict() for result in results]))
        return 0
    from perfkit._tables import print_table  # noqa: PLC0415
    from perfkit.plans.text import schedule_table  # noqa: PLC0415

    for result in results:
        table = schedule_table(result)
        print(table.title)
        print_table(table.header, table.rows, sys.stdout)
        print()
    return 0


def _add_estimate(parser: argparse.ArgumentParser) -> None:
    """Predict step time, throughput, utilisation and memory of configurations, or of every row of a table.

    example: perfkit estimate pretrain.yaml --device Ascend-910B2
    """
    parser.add_argument("inputs", metavar="CONFIG|TABLE.csv", nargs="+", help="configurations (- is standard input), or one table")
    parser.add_argument("--device", help="the device, where a configuration names none")
    parser.add_argument("--calibration", help="a bundled calibration by name, or a TOML file")
    parser.add_argument("--hardware", metavar="FILE", help="devices of your own, in the form of data/hardware.toml")
    parser.add_argument("--out", help="where to write the predictions of a table (default: standard output)")
    parser.add_argument("--json", action="store_true", help="print one JSON document a configuration")
    parser.set_defaults(command=_estimate)


def _estimate(arguments: argparse.Namespace) -> int:
    from perfkit._estimates import estimate_configs, estimate_file  # noqa: PLC0415

    if len(arguments.inputs) == 1 and arguments.inputs[0].lower().endswith(".csv"):
        estimate_file(arguments.inputs[0], arguments.out, arguments.calibration, arguments.hardware, sys.stdout)
    else:
        estimate_configs(
            arguments.inputs, arguments.device, arguments.calibration, arguments.hardware, sys.stdout, as_json=arguments.json
        )
    return 0


def _add_graph(parser: argparse.ArgumentParser) -> None:
    """Communications and their causes, recomputation in effect or not, from saved graph files.

    example: perfkit graph graph/rank_0 --config pretrain.yaml
    """
    parser.add_argument("graph", metavar="IR", help="a graph file (.ir) that save_graphs wrote, or a folder of them")
    parser.add_argument("--config", metavar="CONFIG", help="compare with this configuration; its device gives predicted times")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(command=_graph)


def _graph(arguments: argparse.Namespace) -> int:
    from perfkit.graph import against_config, read_graph  # noqa: PLC0415

    plan = None
    if arguments.config:
        from perfkit.dialects import read_config  # noqa: PLC0415

        plan = read_config(arguments.config)
    with _Progress(sys.stderr) as progress:
        report = read_graph(arguments.graph, hardware=plan.hardware if plan else None, progress=progress)
    document = report.to_json()
    if plan is not None:
        document["config"] = against_config(report, plan)
    if arguments.json:
        print(json.dumps(document, ensure_ascii=False))
    else:
        from perfkit._tables import print_graph  # noqa: PLC0415

        print_graph(document, sys.stdout)
    return 0


def _add_balance(parser: argparse.ArgumentParser) -> None:
    """Choose layers and recomputation of every pipeline stage so that the step is shortest, with a proven bound.

    example: perfkit balance data/plans/gpt_175b_16_stages.json --time-limit-s 60
    """
    parser.add_argument("case", metavar="CASE", help="a perfkit.plans.plan/1 file; - is standard input")
    parser.add_argument("--time-limit-s", type=float, default=60.0, help="stop with the best layout so far (default: 60)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(command=_balance)


def _balance(arguments: argparse.Namespace) -> int:
    from perfkit.plans.balance import balance  # noqa: PLC0415

    with _SolveProgress(sys.stderr) as progress:
        result = balance(arguments.case, time_limit_s=arguments.time_limit_s, progress=progress)
    if arguments.json:
        print(json.dumps(result.to_dict(), ensure_ascii=False))
        return 0
    from perfkit._tables import print_table  # noqa: PLC0415
    from perfkit.plans.text import plan_table  # noqa: PLC0415

    table = plan_table(result)
    print(table.title)
    if table.rows:
        print_table(table.header, table.rows, sys.stdout)
    return 0


_COMMANDS: dict[str, Callable[[argparse.ArgumentParser], None]] = {
    "serve": _add_serve,
    "summary": _add_summary,
    "demo": _add_demo,
    "estimate": _add_estimate,
    "schedule": _add_schedule,
    "balance": _add_balance,
    "graph": _add_graph,
}


class _Progress:
    """A one-line progress bar on a terminal; silent when the output is piped."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = stream.isatty()

    def __enter__(self) -> Callable[[str, int, int], None]:
        return self._show

    def __exit__(self, *_: Any) -> None:
        if self._shown:
            self._stream.write("\r\x1b[K")

    def _show(self, what: str, done_bytes: int, total_bytes: int) -> None:
        if self._shown:
            share = done_bytes / total_bytes if total_bytes else 1.0
            self._stream.write(f"\r\x1b[K{share:4.0%} {what[:60]}")
            self._stream.flush()


class _SolveProgress:
    """Bound and best makespan on one line of a terminal; Ctrl-C once ends the solve with its best layout instead of an error."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = stream.isatty()
        self._asked_to_stop = False

    def __enter__(self) -> Callable[[Any], bool]:
        try:
            self._before = signal.signal(signal.SIGINT, self._stop)
        except ValueError:  # not in the main thread, where nobody presses Ctrl-C
            self._before = None
        return self._show

    def __exit__(self, *_: Any) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
        if self._shown:
            self._stream.write("\r\x1b[K")

    def _stop(self, *_: Any) -> None:
        self._asked_to_stop = True

    def _show(self, now: Any) -> bool:
        if self._shown:
            best = "none yet" if now.best_ns is None else f"{now.best_ns} ns"
            self._stream.write(f"\r\x1b[K{now.seconds:.0f} s, {now.what}: best {best}, bound {now.bound_ns} ns")
            self._stream.flush()
        return not self._asked_to_stop
