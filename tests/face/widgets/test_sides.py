"""What page 21 compares before anything is chosen: what the header says is open, else rounds of the project, else the case."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from perfkit.core.resources import data_folder
from perfkit.face.widgets.sides import first_sides
from perfkit.project import create_project, save

DATA = Path(__file__).parents[2] / "data"
RUN, OTHER = DATA / "traces" / "hta" / "critical_path", DATA / "traces" / "tracelens" / "h100"
CONFIG = data_folder() / "configs" / "llama2_13b.toml"


def test_a_recording_stands_beside_its_plan_or_the_recording_before(tmp_path, monkeypatch):
    project = create_project(tmp_path / "p", "own")
    monkeypatch.setenv("PERFKIT_PROJECT", str(project.folder))
    case = first_sides()
    assert [Path(side).name for side in case] == ["round4.yaml", "round5.yaml"]
    own = tmp_path / "mine.toml"
    own.write_bytes(CONFIG.read_bytes())
    save(replace(project, open_run=RUN))
    assert first_sides() == ("", str(RUN))
    save(replace(project, open_run=RUN, recent=(RUN, OTHER)))
    assert first_sides() == (str(OTHER), str(RUN))
    save(replace(project, open_run=RUN, open_config=own, recent=(RUN, OTHER)))
    assert first_sides() == (str(own), str(RUN))


def test_rounds_of_the_project_come_first(tmp_path, monkeypatch):
    project = create_project(tmp_path / "p", "own")
    monkeypatch.setenv("PERFKIT_PROJECT", str(project.folder))
    save(replace(project, open_run=RUN))
    rounds = [project.folder / "rounds" / f"0{number}" / "config.yaml" for number in (0, 1, 2)]
    for place in rounds:
        place.parent.mkdir(parents=True)
        place.write_text("model: x", encoding="utf-8")
    assert first_sides() == (str(rounds[1]), str(rounds[2]))
