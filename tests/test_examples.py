"""Every example in Python that the documents show runs as it stands, page by page, in a folder that has what the page opens."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

import perfkit
from perfkit.face.export.write import write
from tests.notebook_format import pages

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
DATA, SAMPLES = ROOT / "data", ROOT / "tests" / "data"
QWEN = DATA / "dryrun" / "qwen2.5_7b" / "as_trained"
CONFIG = DATA / "configs" / "pretrain_llama2_7b.yaml"
FILES: Mapping[str, Mapping[str, Path]] = {
    "README.md": {"profile": Path("simulated"), "pretrain_llama2_13b.yaml": CONFIG},
    "configs.md": {"pretrain.yaml": CONFIG},
    "graphs.md": {"graph/rank_0": SAMPLES / "ir" / "dp2tp4_column_row"},
    "memory.md": {
        "pretrain.sh": QWEN / "pretrain.sh",
        "output_dryrun": QWEN,
        "profile": SAMPLES / "traces" / "ascend_memory",
        "tracked": DATA / "traces" / "memory_tracker",
    },
    "prediction.md": {"runs.csv": DATA / "reference" / "step_time.csv"},
    "queries.md": {
        "profile": DATA / "traces" / "kineto_resnet",
        "cluster": SAMPLES / "traces" / "dlrm_8xV100",
        "profile_ascend": SAMPLES / "traces" / "torch_npu_db",
    },
    "simulate.md": {"llama2_13b.toml": Path("plan")},
    "timeline.md": {"profile": DATA / "traces" / "kineto_resnet"},
    "what_if.md": {"profiles": Path("simulated")},
}
"""What the examples of a page open, by its name there: a sample, or what `made` makes once."""


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A plan with few micro batches, four steps of it as a profile, and the first runs of a long table."""
    folder = tmp_path_factory.mktemp("made")
    plan = (DATA / "configs" / "llama2_13b.toml").read_text(encoding="utf-8")
    (folder / "plan").write_text(plan.replace("global_batch_size = 1024", "global_batch_size = 16"), encoding="utf-8")
    write(perfkit.simulate(perfkit.read_config(_named(folder / "plan", "plan.toml")), seed=1, steps=4), folder / "simulated")
    return folder


def _named(file: Path, name: str) -> Path:
    return Path(shutil.copyfile(file, file.with_name(name)))


def _shortened(file: Path) -> None:
    """A calibration of a thousand runs takes minutes, and shows no more than one of six."""
    file.write_text("".join(file.read_text(encoding="utf-8").splitlines(keepends=True)[:7]), encoding="utf-8")


def _cells_before_the_first_step() -> dict[str, object]:
    """What the page that the text names as the pattern has defined when its first step begins."""
    known: dict[str, object] = {}
    notebook = json.loads(next(page for page in pages() if page.stem == "11_step_breakdown").read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if "@widgets.step" in source:
            break
        if cell["cell_type"] == "code":
            exec(compile(source, cell["id"], "exec"), known)
    return known


BEFORE: Mapping[str, Callable[[], dict[str, object]]] = {
    "class.md": lambda: {"c": SimpleNamespace(Spawner=SimpleNamespace(environment={}))},  # the configuration of a Hub
    "notebooks.md": _cells_before_the_first_step,
}
PAGES = [path for path in DOCUMENTS if BLOCK.search(path.read_text(encoding="utf-8"))]


@pytest.mark.slow
@pytest.mark.parametrize("document", PAGES, ids=lambda path: path.name)
def test_the_examples_of_a_page_run_as_they_stand(document, made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PERFKIT_CACHE", str(tmp_path / "cache"))
    for name, sample in FILES.get(document.name, {}).items():
        (source, target) = (sample if sample.is_absolute() else made / sample), tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, target)
        if target.suffix == ".csv":
            _shortened(target)
    known = BEFORE.get(document.name, dict)()
    text = document.read_text(encoding="utf-8")
    for block in BLOCK.finditer(text):
        lines_before = text[: block.start(1)].count("\n")
        exec(compile("\n" * lines_before + block[1], document.name, "exec"), known)


def test_every_page_with_an_example_has_what_it_opens():
    assert {path.name for path in PAGES} >= FILES.keys() | BEFORE.keys()
