"""Cells of a page in a plain kernel, as a person runs them: out of order, with nothing chosen, with mistakes, after a restart."""

from __future__ import annotations

import ast
import contextlib
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import KernelManager

from perfkit.core.resources import data_folder
from perfkit.face.cli import main
from perfkit.record.load import load
from tests.page_cells import code_cells

OWN = data_folder() / "traces" / "kineto_resnet"
SUMMARY = "[list(where_the_step_went.wait().tables), run.steps()['duration_ns'].tolist()]"
MOST_S = 300.0
pytestmark = pytest.mark.slow


def cells_of(page: str) -> dict[str, str]:
    return {cell["id"]: "".join(cell["source"]) for cell in code_cells(page)}


CELLS = cells_of("11_step_breakdown")


class Kernel:
    """A kernel of Jupyter's own, and what its cells give."""

    def __init__(self, folder: Path) -> None:
        self.manager = KernelManager()
        self.manager.start_kernel(cwd=str(folder))
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=MOST_S)

    def run(self, source: str, **values: str) -> str:
        """The error that a cell ends with, as `name: text`; "" if there is none. `values` are expressions to keep in `told`."""
        reply = self.client.execute(source, reply=True, timeout=MOST_S, user_expressions=values, stop_on_error=False)["content"]
        if reply["status"] == "error":
            return f"{reply['ename']}: {reply['evalue']}"
        self.told = {
            name: found["data"]["text/plain"] if found["status"] == "ok" else f"{found['ename']}: {found['evalue']}"
            for name, found in reply["user_expressions"].items()
        }
        return ""

    def value(self, expression: str) -> Any:
        """What an expression is, as JSON has it; the text of its error where it has one."""
        error = self.run("import json", found=f"json.dumps({expression})")
        assert not error
        text = self.told["found"]
        return json.loads(ast.literal_eval(text)) if text.startswith(("'", '"')) else text

    def fresh(self) -> None:
        """Forget all names, and the address of the page."""
        assert not self.run("%reset -f\nfrom perfkit.face.widgets.page_state import page_state\npage_state.cache_clear()")

    def restart(self) -> None:
        """As with Jupyter's button."""
        self.manager.restart_kernel(now=True)
        self.client.wait_for_ready(timeout=MOST_S)


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    folder = tmp_path_factory.mktemp("kernel")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERFKIT_PROJECT", str(folder))
        found = Kernel(folder)
    yield found
    found.client.stop_channels()
    found.manager.shutdown_kernel(now=True)


@pytest.fixture
def kernel(started: Kernel) -> Kernel:
    """The kernel with nothing in it; its modules stay."""
    started.fresh()
    return started


def in_order(kernel: Kernel, page: str = "11_step_breakdown", *, path: Path | None, beside: str = "") -> None:
    for name, source in cells_of(page).items():
        assert not kernel.run(source), name
        if name == "parameters":
            assert not kernel.run(f"path = {str(path)!r}\n{beside}")


def test_a_cell_that_is_run_too_early_names_what_it_lacks_and_answers_once_that_is_there(kernel: Kernel):
    in_order(kernel, path=OWN)
    expected = kernel.value(SUMMARY)
    assert expected[1] == load(OWN).steps()["duration_ns"].tolist()
    assert not kernel.run("%reset -f")
    assert kernel.run(CELLS["ranks"]) == "NameError: name 'widgets' is not defined"
    assert not kernel.run(CELLS["header"])
    assert kernel.run(CELLS["ranks"]) == "NameError: name 'open_run' is not defined"
    assert not kernel.run(f"path = {str(OWN)!r}\n{CELLS['recording']}")
    for name in ("ranks", "yours"):
        assert not kernel.run(CELLS[name])
    assert kernel.value(SUMMARY) == expected


def test_a_picker_that_is_left_empty_is_said_by_what_follows_it(kernel: Kernel):
    in_order(kernel, path=OWN)
    kernel.run("open_run.choose('')")
    assert kernel.run("open_run.value").startswith("NothingYet: No recording is open yet. Choose a folder of profiles")
    assert kernel.run("where_the_step_went.wait()").split(": ")[1] == "This needs “Recording” above, which has no answer yet."
    assert kernel.value("where_the_step_went.view.status")["state"] == "empty"
    assert not kernel.run(f"open_run.choose({str(OWN)!r})")
    assert kernel.value("list(where_the_step_went.wait().tables)") == ["Ranks, slowest first"]


def test_an_exception_in_a_step_is_shown_in_it_and_the_others_go_on(kernel: Kernel):
    in_order(kernel, path=OWN)
    own = "@widgets.step(run=open_run)\ndef halves(run):\n    return len(run.ranks) / 0"
    assert not kernel.run(own), "the cell itself ends well"
    assert not kernel.run("@widgets.step(half=halves)\ndef quarters(half):\n    return half / 2")
    assert kernel.run("halves.value") == "ZeroDivisionError: division by zero"
    status = kernel.value("halves.view.status")
    assert (status["state"], status["title"], status["problems"]) == ("error", "Halves: ZeroDivisionError", ["division by zero"])
    assert "return len(run.ranks) / 0" in status["details"], "the line of one's own"
    assert kernel.run("quarters.value").split(": ")[1] == "This needs “Halves” above, which has failed."
    assert kernel.value("where_the_step_went.view.status") == {"state": "result"}
    assert not kernel.run(own.replace("/ 0", "/ 2"))
    assert kernel.value("halves.value") == len(load(OWN).ranks) / 2


def test_after_a_restart_the_cells_answer_as_before(kernel: Kernel):
    in_order(kernel, path=OWN)
    expected = kernel.value(SUMMARY)
    kernel.restart()
    assert kernel.run("where_the_step_went.value") == "NameError: name 'where_the_step_went' is not defined"
    in_order(kernel, path=OWN)
    assert kernel.value(SUMMARY) == expected


def test_a_notebook_of_an_older_version_is_told_where_todays_pages_are(kernel: Kernel):
    assert "`perfkit notebooks`" in kernel.run("from perfkit import panels\npanels.show('memory-plan')")


def asked(*words: str | Path, exits: tuple[int, ...] = (0,)) -> Any:
    """What the command line prints as JSON."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main([*map(str, words), "--json"]) in exits
    return json.loads(out.getvalue())


def sums(recording: Path, question: str, amount: str, *options: str) -> list[int]:
    rows = asked("ask", recording, question, *options)["rows"]
    return sorted((row[amount] for row in rows if row[amount] is not None), reverse=True)[:10]


OWN_OBJECTS = {
    "00_start_here": "{'findings': to_dict(the_verdict.value[0].diagnosis)['findings']}",
    "10_load_run": "{'steps': run.frame('steps').sort_values(['rank', 'step'])['duration_ns'].tolist()}",
    "11_step_breakdown": "{'rank': int(slowest), 'kernels': run.kernels(rank=slowest)['total_ns'].nlargest(10).tolist()}",
    "12_operators": "{'kernels': run.kernels()['total_ns'].nlargest(10).tolist()}",
    "13_communication": "{'waits': [int(one) for one in run.collectives()['wait_ns'].dropna().nlargest(10)]}",
    "14_timeline": "{'steps': run.steps().sort_values(['rank', 'step'])['duration_ns'].tolist()}",
    "20_findings": "{'findings': to_dict(findings)['findings'], 'ledger': to_dict(findings)['waterfall']}",
}
"""Pages on a recording: what their last cells leave behind, by what the command line is asked for the same."""
ASKED: dict[str, Callable[[Path, Any], Any]] = {
    "steps": lambda place, _: [step["duration_ns"] for rank in asked("summary", place)["ranks"] for step in rank["steps"]],
    "rank": lambda _, found: found["rank"],
    "kernels": lambda place, found: sums(
        place, "kernels", "total_ns", *(["--rank", str(found["rank"])] if "rank" in found else [])
    ),
    "waits": lambda place, _: sums(place, "collectives", "wait_ns"),
    "findings": lambda place, _: asked("diagnose", place)["findings"],
    "ledger": lambda place, _: asked("diagnose", place)["waterfall"],
}


@pytest.mark.parametrize("place", ["torch_npu_pp2dp2", "dlrm_8xV100"])
def test_pages_on_a_recording_of_ones_own_leave_what_the_command_line_says(place: str, kernel: Kernel):
    own = Path(__file__).parent / "data" / "traces" / place
    for page, expression in OWN_OBJECTS.items():
        kernel.fresh()
        in_order(kernel, page, path=own)
        assert not kernel.run("from perfkit.explain.diagnose import to_dict")
        found = kernel.value(expression)
        assert found == {name: ASKED[name](own, found) for name in found}, page


DATA = Path(__file__).parent / "data"
CONFIG = DATA / "configs" / "mindformers" / "v1.7.0" / "configs" / "qwen3" / "pretrain_qwen3_32b_4k.yaml"
OTHER = DATA / "configs" / "mindformers" / "v1.5.0" / "research" / "llama3_1" / "llama3_1_70b" / "finetune_llama3_1_70b.yaml"
DEVICE = ("--device", "Ascend-910B2")
LOGS = [DATA / "traces" / "logs" / "mindformers" / f"llama3_1_8b_{name}.log" for name in ("ckpt_health", "skip_data")]
DLRM = DATA / "traces" / "dlrm_8xV100"
GRAPH = DATA / "ir" / "dp2tp4_column_row" / "21_validate_0082.ir"
ROUND_1 = data_folder() / "case13b" / "round1.yaml"


def of(answer: Any, *keys: str) -> list[Any]:
    return [answer[key] for key in keys]


def parts_of(told: Any) -> dict[str, int]:
    return {name: amount for name, amount in told["breakdown_bytes"].items() if amount}


OTHERS: dict[str, tuple[Path | None, str, Callable[[], Any]]] = {
    "01_baseline": (
        LOGS[0],
        "log['duration_ns'].tolist()",
        lambda: [step["duration_ns"] for step in asked("summary", LOGS[0])["ranks"][0]["steps"]],
    ),
    "02_model_cost": (
        CONFIG,
        "[predicted.step_time_s, predicted.mfu]",
        lambda: of(asked("estimate", CONFIG, *DEVICE), "step_time_s", "mfu"),
    ),
    "03_parallel_strategy": (
        CONFIG,
        "[predicted.step_time_s, len(candidates)]",
        lambda: [
            (told := asked("plan", CONFIG, *DEVICE, exits=(0, 1)))["plans"][0]["estimate"]["step_time_s"],
            told["feasible"],
        ],
    ),
    "04_memory": (
        CONFIG,
        "[{name: amount for name, amount in estimate.peak.parts.items() if amount}, fit.fits]",
        lambda: [parts_of(told := asked("estimate", CONFIG, *DEVICE)), told["fits"]],
    ),
    "05_recompute": (CONFIG, "plan.model.num_layers", lambda: 64),
    "06_pipeline_balance": (
        CONFIG,
        "[how_long_a_step.value[0].step_time_s, int(layout.sum())]",
        lambda: [*of(asked("estimate", CONFIG, *DEVICE), "step_time_s"), 64],
    ),
    "17_cluster": (
        DLRM,
        "judged.case.steps.groupby('rank')['duration_ns'].apply(list).to_dict()",
        lambda: {str(rank["rank"]): [step["duration_ns"] for step in rank["steps"]] for rank in asked("summary", DLRM)["ranks"]},
    ),
    "18_graph_ir": (
        GRAPH,
        "sorted(next(iter(which_communication_is_not_needed.wait().tables.values())).frame['node'])",
        lambda: sorted(one["node"] for one in asked("graph", GRAPH)["files"][GRAPH.name]["communication"]),
    ),
    "19_dryrun": (
        DATA / "traces" / "logs" / "dryrun" / "pp4_output_dryrun",
        "sorted(judged.to_frame()['rank'])",
        lambda: [f"rank {number}" for number in (0, 12, 4, 8)],
    ),
    "21_compare": (CONFIG, "comparison.to_json()['total']", lambda: asked("compare", OTHER, CONFIG, *DEVICE)["total"]),
    "22_accuracy_alignment": (
        LOGS[0],
        "[found.verdict, found.max_relative]",
        lambda: of(asked("compare", LOGS[1], LOGS[0], exits=(0, 1)), "verdict", "max_relative"),
    ),
    "23_user_code": (
        CONFIG,
        "problems['rule'].tolist()",
        lambda: [problem["rule"] for problem in asked("lint", CONFIG, exits=(0, 1))["problems"]],
    ),
    "30_case_13b": (None, "rounds[1].estimate.step_time_s", lambda: asked("estimate", ROUND_1, *DEVICE)["step_time_s"]),
    "40_class": (
        None,
        "asked.answer",
        lambda: next(
            one["answer"]
            for one in asked("class", "answers", "--seed", "2024", "--student", "s01")["answers"]
            if one["exercise"] == "E02"
        ),
    ),
}
"""Pages on something else: what is opened, what their last cells leave behind, and what the command line says of the same."""
BESIDE = {"21_compare": f"old_path = {str(OTHER)!r}", "22_accuracy_alignment": f"reference_path = {str(LOGS[1])!r}"}


@pytest.mark.parametrize("page", OTHERS)
def test_other_pages_on_what_is_ones_own_leave_what_the_command_line_says(page: str, kernel: Kernel):
    own, expression, told = OTHERS[page]
    in_order(kernel, page, path=own, beside=BESIDE.get(page, ""))
    assert kernel.value(expression) == told()
