"""The verdict on a recording: what is read and diagnosed ahead of the first page is not done again by it."""

from __future__ import annotations

import threading

from perfkit.core.resources import data_folder
from perfkit.face.widgets import context, judged

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
