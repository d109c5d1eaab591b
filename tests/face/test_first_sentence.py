"""The first sentence of a page is its answer: it is one that is read at a glance, whatever recording or plan is open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from perfkit.core.errors import PerfkitError
from perfkit.core.resources import data_folder
from perfkit.project.sample import demo
from tests.face.test_sentences import OWN, PLANS, RUNS
from tests.page_cells import cell_by_cell, views, with_steps

MOST_LETTERS = 130
ANSWERED = ("00", "02", "03", "05", "06", "10", "12", "13", "17", "18", "20", "21", "31")
"""Pages whose first sentence is the answer to their title."""
MORE_RUNS = tuple(
    OWN / name
    for name in ("cluster_db", "dlrm_8xV100", "hta", "kineto_h100", "mindinsight", "msinsight_groups", "msprof_db", "msprof_export")
)
GRAPHS = tuple(sorted((data_folder() / "ir").glob("*.ir")))
PIPELINES = tuple(data_folder() / "plans" / name for name in ("dense_moe_4_stages.json", "llama_96_layers_16_stages.json"))
OPENED: Mapping[str, tuple[Path, ...]] = {
    **dict.fromkeys(("00", "10", "12", "13", "17", "20"), (*RUNS, *MORE_RUNS)),
    **dict.fromkeys(("02", "03", "05"), tuple(PLANS)),
    "06": (*PLANS, *PIPELINES),
    "18": GRAPHS,
    "31": GRAPHS[-3:],
}


def cases() -> Iterator[Any]:
    of_pages = [(name, path) for name in with_steps() if name.startswith(ANSWERED) for path in (None, *OPENED.get(name[:2], ()))]
    for name, path in sorted(of_pages, key=lambda case: str(case[1] or "")):  # a recording is read once for all its pages
        yield pytest.param(name, {"path": path} if path else {}, id=f"{name}-{path.stem}" if path else name)
    for names in (("torch_npu_2rank", "kineto_resnet"), ("torch_npu_2rank", "torch_npu_2rank")):
        old, new = (data_folder() / "traces" / name for name in names)
        yield pytest.param("21_compare", {"old_path": old, "path": new}, id=f"21-{'-'.join(names)}")


@pytest.fixture(autouse=True)
def _in_the_sample_project(sample_project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFKIT_PROJECT", str(sample_project))
    monkeypatch.setenv("PERFKIT_WAIT_FOR_PANELS", "1")


@pytest.fixture(scope="module")
def sample_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return demo(tmp_path_factory.mktemp("first") / "demo").folder


def first_sentence(page: str, parameters: Mapping[str, Path]) -> str:
    """What a visitor reads first below the lines of what is open; empty where nothing of it was recorded."""
    for objects in cell_by_cell(page, **parameters):
        for name, view in views(objects).items():
            with suppress(PerfkitError):
                if not name.startswith("open_") and (text := view.wait().text):
                    return str(text)
    return ""


@pytest.mark.parametrize(("name", "parameters"), list(cases()))
def test_the_first_sentence_of_a_page_is_read_at_a_glance(name: str, parameters: Mapping[str, Path]):
    text = first_sentence(name, parameters)
    assert len(text) <= MOST_LETTERS, text
    assert bool(text) or parameters, "every page answers for the sample"
