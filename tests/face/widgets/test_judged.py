"""The verdict on a recording: what is read and diagnosed ahead of the first page is not done again by it."""

from __future__ import annotations

import shutil
import threading
from dataclasses import replace

from perfkit.core.resources import data_folder
from perfkit.face.widgets import context, judged
from perfkit.project import save
from perfkit.project.sample import demo
from perfkit.project.verdict import OTHER_PLAN

SAMPLE = data_folder() / "traces" / "kineto_resnet"


def test_what_was_begun_ahead_is_what_the_page_gets(monkeypatch):
    made = []
    real = judged.diagnose
    monkeypatch.setattr(judged, "diagnose", lambda run: made.append(run) or real(run))
    monkeypatch.setattr(context, "first_run", lambda _samples: str(SAMPLE))
    judged.begin()
    found = judged.judged(context.read_run(str(SAMPLE)), str(SAMPLE))
    assert found.diagnosis.findings is not None
    assert len(made) == 1


def test_what_cannot_be_read_is_left_to_the_page(monkeypatch, tmp_path):
    told = []
    monkeypatch.setattr(threading, "excepthook", told.append)
    monkeypatch.setattr(context, "first_run", lambda _samples: str(tmp_path))
    before = set(threading.enumerate())
    judged.begin()
    for thread in set(threading.enumerate()) - before:
        thread.join()
    assert told == []


def test_a_recording_is_judged_by_its_own_configuration_and_goal_and_not_by_those_of_the_sample_project(tmp_path, monkeypatch):
    project = demo(tmp_path / "demo")
    monkeypatch.setenv("PERFKIT_PROJECT", str(project.folder))
    own = shutil.copytree(SAMPLE, tmp_path / "own")
    assert judged.plan_of(str(own)) is None
    told = judged.judged(context.read_run(str(own)), str(own)).to_frame()
    assert not told["against"].str.contains("goal|round", regex=True).any()
    assert told["against"].tolist()[1:3] == [OTHER_PLAN, OTHER_PLAN]
    config = shutil.copy(project.folder / "rounds" / "05" / "config.yaml", tmp_path / "own.yaml")
    save(replace(project, open_config=config))
    assert judged.plan_of(str(own)) is not None
