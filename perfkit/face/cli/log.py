"""Keep the experiment log of a tuning project: rounds, predictions, runs, decisions.

example: perfkit log start "pp 2" --hypothesis "two stages amortise the update" && perfkit log show
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from perfkit.core import texts
from perfkit.core.errors import InputError
from perfkit.core.quantity import listed
from perfkit.core.settings import PROJECT_FILE, project_folder
from perfkit.core.texts import told
from perfkit.face.cli._command import Command
from perfkit.face.cli._document import print_document
from perfkit.face.cli._screen import say

if TYPE_CHECKING:
    from perfkit.project.experiments import ExperimentLog


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--folder", type=Path, help="the tuning project (default: the nearest one above this folder)")
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    _add_writing(actions)
    show = _action(actions, "show", _show, "print the ladder of rounds")
    show.add_argument("--json", action="store_true", help="print everything as one JSON document")
    diff = _action(actions, "diff", _diff, "configuration keys that differ between two rounds")
    diff.add_argument("before", type=int, metavar="A")
    diff.add_argument("after", type=int, metavar="B")
    diff.add_argument("--json", action="store_true", help="print one JSON document")
    restore = _action(actions, "restore", _restore, "write the configuration of a round byte for byte")
    restore.add_argument("round", type=int)
    restore.add_argument("--out", required=True, help="where to write it")
    restore.add_argument("--force", action="store_true", help="replace an existing file")
    take = _action(actions, "import", _import, "take earlier rounds from a CSV with number,metric,value,note")
    take.add_argument("table", metavar="TABLE.csv")
    export = _action(actions, "export", _export, "write the whole log as Markdown, or as one HTML page")
    export.add_argument("--out", required=True, help="where to write it; the suffix .html gives HTML")
    export.add_argument("--format", choices=("md", "html"), help="default: by the suffix of --out")


def _add_writing(actions: Any) -> None:
    start = _action(actions, "start", _start, "open the next round")
    start.add_argument("title")
    start.add_argument("--hypothesis", default="", help="what you expect, and why")
    start.add_argument("--parent", type=int, help="the round that this one changes (default: the last kept one)")
    start.add_argument("--abandon", metavar="REASON", help="drop the open round for this reason")
    attach = _action(actions, "attach", _attach, "keep a file or folder with a round")
    attach.add_argument("path")
    attach.add_argument("--round", type=int, help="default: the last one")
    attach.add_argument(
        "--as", dest="as_", required=True, choices=("config", "as_run", "run", "log", "trace", "ir", "report", "chart")
    )
    attach.add_argument("--devices", type=int, help="where the configuration does not say how many")
    predict = _action(actions, "predict", _predict, "predict a metric before the measurement")
    predict.add_argument("metric")
    predict.add_argument("value", type=float)
    predict.add_argument("--low", type=float)
    predict.add_argument("--high", type=float)
    predict.add_argument("--method", required=True, help="how the figure was found")
    predict.add_argument("--round", type=int, help="default: the last one")
    measure = _action(actions, "measure", _measure, "note a figure that was measured or published elsewhere")
    measure.add_argument("metric")
    measure.add_argument("value", type=float)
    measure.add_argument("--source", required=True, help="where the figure comes from")
    measure.add_argument("--kind", default="measured", choices=("measured", "simulated", "reported"))
    measure.add_argument("--round", type=int, help="default: the last one")
    _add_judging(actions)


def _add_judging(actions: Any) -> None:
    accuracy = _action(actions, "accuracy", _accuracy, "say whether the model is still the same")
    accuracy.add_argument("verdict", choices=("pass", "fail", "not_checked"))
    accuracy.add_argument("--steps", type=int, help="steps that were compared")
    accuracy.add_argument("--note", default="")
    accuracy.add_argument("--round", type=int, help="default: the last one")
    skip = _action(actions, "skip", _skip, "pass over a state without its evidence")
    skip.add_argument("state", choices=("strategy", "memory", "predict", "measure", "analyse", "align"))
    skip.add_argument("--reason", required=True, help="kept with the round, at least 15 characters")
    skip.add_argument("--round", type=int, help="default: the last one")
    decide = _action(actions, "decide", _decide, "close a round")
    decide.add_argument("verdict", choices=("keep", "revert", "repeat", "stop"))
    decide.add_argument("--reason", required=True)
    decide.add_argument("--next", default="", help="what to try then")
    decide.add_argument("--confirm", default="", help='"not checked" keeps a round whose accuracy was not checked')
    decide.add_argument("--round", type=int, help="default: the last one")


def _action(actions: Any, name: str, action: Any, help: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(name, help=told(help), description=told(help))
    parser.set_defaults(action=action)
    return parser


def _run(arguments: argparse.Namespace) -> int:
    from perfkit.project import find_project
    from perfkit.project.experiments import ExperimentLog

    folder = arguments.folder or find_project()
    if arguments.action in (_start, _import):
        folder = _project(folder or project_folder() or Path.cwd())
    elif folder is None:
        begin = "this folder lies in no tuning project; `perfkit log start TITLE --hypothesis WHY` makes it one, or give --folder"
        raise InputError("log", [begin])
    arguments.action(ExperimentLog(folder), arguments)
    return 0


def _project(folder: Path) -> Path:
    """A log begins in a project, which every page and command then finds from any folder below."""
    from perfkit.project import create_project
    from perfkit.record.listing import printable

    if not (folder / PROJECT_FILE).is_file():
        create_project(folder, printable(folder.resolve().name)[:200] or "tuning")
        form = "{folder} is a tuning project now: {file} holds its goal, `perfkit serve` opens it"
        say(sys.stdout, texts.say(form, folder=str(folder), file=PROJECT_FILE))
    return folder


def _start(log: ExperimentLog, arguments: argparse.Namespace) -> None:
    number = log.start(arguments.title, arguments.hypothesis, parent=arguments.parent, abandon=arguments.abandon)
    say(sys.stdout, texts.say("round {number} is open: {title}", number=str(number), title=arguments.title))


def _attach(log: ExperimentLog, arguments: argparse.Namespace) -> None:
    number, run = _number(log, arguments), None
    if arguments.as_ == "run":
        from perfkit.face.cli._progress import Progress
        from perfkit.record.load import load

        with Progress(sys.stderr) as progress:
            run = load(arguments.path, progress=progress)
    kept = log.attach(number, arguments.path, arguments.as_, run=run, devices=arguments.devices)
    what = {"path": arguments.path, "number": str(number), "kind": arguments.as_}
    lead = texts.say("{path} is kept with round {number} as {kind}", **what)
    say(sys.stdout, lead if run is None else texts.say("{lead}: {figures}", lead=lead, figures=_figures(log, kept)))


def _figures(log: ExperimentLog, run_id: int) -> str:
    """The figures of a run in one line, and whether the goal is among them."""
    document = log.show("json")
    (run,) = (run for row in document["rounds"] for run in row["runs"] if run["id"] == run_id)
    found = {item["metric"]: item["value"] for item in run["measurements"]}
    goal = document["project"]["goal_metric"]
    figures = listed(found, told) or told("no figures")
    lacking = "{figures}; no {goal}, which the goal is of: attach the configuration, then this again"
    return figures if goal in found else texts.say(lacking, figures=figures, goal=goal)


def _predict(log: ExperimentLog, arguments: argparse.Namespace) -> None:
    number = _number(log, arguments)
    log.predict(number, arguments.metric, arguments.value, low=arguments.low, high=arguments.high, method=arguments.method)
    say(sys.stdout, texts.say("round {number}: {metric} predicted", number=str(number), metric=arguments.metric))


def _measure(log: ExperimentLog, arguments: argparse.Namespace) -> None:
    from perfkit.project.experiments import Measurement

    number = _number(log, arguments)
    figure = Measurement(metric=arguments.metric, value=arguments.value, source=arguments.source)
    log.add_run(number, [figure], kind=arguments.kind, format="by hand")
    form = "round {number}: {metric} noted; its predictions are locked"
    say(sys.stdout, texts.say(form, number=str(number), metric=arguments.metric))


def _accuracy(log: ExperimentLog, arguments: argparse.Namespace) -> None:
    number = _number(log, arguments)
    log.record_accuracy(number, arguments.verdict, note=arguments.note, steps=arguments.steps)
    say(sys.stdout, texts.say("round {number}: accuracy {verdict}", number=str(number), verdict=arguments.verdict))


def _skip(log: ExperimentLog, arguments: argparse.Namespace) -> None:
    number = _number(log, arguments)
    log.skip(number, arguments.state, arguments.reason)
    say(sys.stdout, texts.say("round {number}: {state} is skipped", number=str(number), state=arguments.state))


def _decide(log: ExperimentLog, arguments: argparse.Namespace) -> None:
    number = _number(log, arguments)
    log.decide(number, arguments.verdict, arguments.reason, next_step=arguments.next, confirmation=arguments.confirm)
    say(sys.stdout, texts.say("round {number} is closed: {verdict}", number=str(number), verdict=arguments.verdict))


def _show(log: ExperimentLog, arguments: argparse.Namespace) -> None:
    if arguments.json:
        print_document(log.show("json"))
        return
    from perfkit.face.cli._tables import print_table

    title, ladder, *_ = log.sections()
    for line in (title.title, *title.text, ""):
        say(sys.stdout, told(line))
    print_table(ladder.header, [list(row) for row in ladder.rows], sys.stdout, told=["accuracy", "verdict", "kind"])


def _diff(log: ExperimentLog, arguments: argparse.Namespace) -> None:
    changed = log.diff(arguments.before, arguments.after)
    if arguments.json:
        print_document(changed)
        return
    from perfkit.face.cli._tables import print_table

    print_table(["key", "old", "new"], [[row["key"], str(row["old"]), str(row["new"])] for row in changed], sys.stdout)


def _restore(log: ExperimentLog, arguments: argparse.Namespace) -> None:
    written = log.restore(arguments.round, arguments.out, force=arguments.force)
    say(sys.stdout, texts.say("written to {target}", target=str(written)))


def _import(log: ExperimentLog, arguments: argparse.Namespace) -> None:
    numbers = log.import_(arguments.table)
    say(sys.stdout, texts.say("{num} rounds taken: {numbers}", num=str(len(numbers)), numbers=", ".join(map(str, numbers))))


def _export(log: ExperimentLog, arguments: argparse.Namespace) -> None:
    is_html = arguments.format == "html" or (arguments.format is None and arguments.out.lower().endswith((".html", ".htm")))
    form: Literal["md", "html"] = "html" if is_html else "md"
    say(sys.stdout, texts.say("written to {target}", target=str(log.export(arguments.out, form))))


def _number(log: ExperimentLog, arguments: argparse.Namespace) -> int:
    """The round that was named, or the last one."""
    if arguments.round is not None:
        return int(arguments.round)
    rounds = log.show("json")["rounds"]
    if not rounds:
        raise InputError("log", ["there is no round yet; open one with: perfkit log start TITLE"])
    return int(rounds[-1]["number"])


COMMAND = Command(name="log", add=_add, run=_run)
