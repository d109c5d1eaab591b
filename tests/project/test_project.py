from __future__ import annotations

import json
import multiprocessing
import os
import socket
import time
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from perfkit.core.errors import InputError
from perfkit.project import create_project, find_project, open_project, remember, sample_paths, save
from perfkit.project._lock import locked

HOSTILE = "<img src=x onerror=alert(1)> \"'\\ \r\n\t\x00\x7f 模型 🚀 ../../etc \u202e"
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=50)


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PERFKIT_PROJECT", raising=False)
    monkeypatch.delenv("PERFKIT_READ_ONLY", raising=False)


def _edit(folder: Path, text: str) -> None:
    (folder / "perfkit.toml").write_text(text, encoding="utf-8")


def test_a_new_project_has_its_folders_and_opens_with_what_it_was_given(tmp_path: Path):
    made = create_project(
        tmp_path / "p",
        "13B",
        goal_metric="mfu",
        goal_value=0.5,
        peak_flops_per_s=376e12,
        device_memory_bytes=64 * 2**30,
        usable_limit_bytes=58 * 2**30,
        attention="causal",
        count_head=False,
    )
    assert open_project(tmp_path / "p") == made
    assert (made.goal_value, made.attention, made.count_head, made.usable_limit_bytes) == (0.5, "causal", False, 59392 * 2**20)
    assert {path.name for path in made.folder.iterdir()} == {"perfkit.toml", "rounds", "uploads", "reports"}
    assert made.warnings == ()
    assert not made.read_only


def test_a_second_project_in_the_same_folder_is_refused(tmp_path: Path):
    create_project(tmp_path, "one")
    with pytest.raises(InputError, match="holds a project already"):
        create_project(tmp_path, "two")
    assert open_project(tmp_path).name == "one"


def test_a_project_with_impossible_values_is_not_made(tmp_path: Path):
    with pytest.raises(InputError) as error:
        create_project(tmp_path / "p", " ", goal_value=-1.0, device_memory_bytes=10, usable_limit_bytes=20)
    assert len(error.value.problems) == 3
    assert not (tmp_path / "p").exists()


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
@given(name=TEXT.filter(str.strip), key=TEXT, value=TEXT)
def test_any_unicode_name_and_remembered_text_comes_back(tmp_path_factory: pytest.TempPathFactory, name: str, key: str, value: str):
    project = create_project(tmp_path_factory.mktemp("p"), name)
    remember(project, key, value)
    again = open_project(project.folder)
    assert again.name == name
    assert again.pages == {key: value}


def test_hostile_text_is_kept_as_data(tmp_path: Path):
    create_project(tmp_path, HOSTILE)
    assert open_project(tmp_path).name == HOSTILE


def test_half_a_surrogate_pair_is_refused_because_no_file_can_hold_it(tmp_path: Path):
    with pytest.raises(InputError, match="name"):
        create_project(tmp_path, "a\ud800")


def test_a_damaged_file_names_every_key_with_its_value(tmp_path: Path):
    _edit(
        tmp_path,
        'name = 3\n[goal]\nmetric = "speed"\nvalue = "fast"\nop = "="\n[device]\npeak_flops_per_s = inf\nmemory_bytes = 1.5\n'
        '[convention]\nattention = "half"\ncount_head = 1\n[open]\nround = -1\nrun = 7\n[pages]\nlist = [1]\n',
    )
    with pytest.raises(InputError) as error:
        open_project(tmp_path)
    text = str(error.value)
    assert len(error.value.problems) == 11
    for found in ("name = 3", "'speed'", "'fast'", "'='", "inf", "1.5", "'half'", "count_head = 1", "-1", "open.run = 7", "[1]"):
        assert found in text


def test_a_value_where_a_table_belongs_is_said(tmp_path: Path):
    _edit(tmp_path, 'goal = 5\npages = "x"\n')
    with pytest.raises(InputError, match=r"goal = 5 must be a table"):
        open_project(tmp_path)


def test_text_that_is_no_toml_is_refused_with_its_line(tmp_path: Path):
    _edit(tmp_path, 'name = "x"\nvalue = \n')
    with pytest.raises(InputError, match="line 2"):
        open_project(tmp_path)
    (tmp_path / "perfkit.toml").write_bytes(b'name = "\xff"')
    with pytest.raises(InputError, match="not UTF-8"):
        open_project(tmp_path)


def test_a_folder_without_a_project_is_said(tmp_path: Path):
    with pytest.raises(InputError, match=r"holds no perfkit\.toml"):
        open_project(tmp_path)


def test_unknown_keys_are_warned_about_and_kept(tmp_path: Path):
    _edit(tmp_path, 'name = "x"\nteam = "ß"\n[goal]\nvaule = 3\n[thresholds]\nslow_rank_z = 4.0\n')
    project = open_project(tmp_path)
    assert [warning.split(" ")[0] for warning in project.warnings] == ["team", "goal.vaule"]
    saved = save(replace(project, goal_value=2200.0))
    document = tomllib.loads((tmp_path / "perfkit.toml").read_text(encoding="utf-8"))
    assert document == {"name": "x", "team": "ß", "goal": {"vaule": 3, "value": 2200.0}, "thresholds": {"slow_rank_z": 4.0}}
    assert saved.goal_value == 2200.0


def test_paths_inside_the_folder_are_stored_relative_and_follow_a_move(tmp_path: Path):
    project = create_project(tmp_path / "old", "x")
    (tmp_path / "old" / "uploads" / "run").mkdir()
    (tmp_path / "outside.yaml").write_text("a: 1", encoding="utf-8")
    save(replace(project, open_run=project.folder / "uploads" / "run", open_config=tmp_path / "outside.yaml", open_round=0))
    (tmp_path / "old").rename(tmp_path / "new")
    moved = open_project(tmp_path / "new")
    assert moved.open_run == tmp_path / "new" / "uploads" / "run"
    assert moved.open_config == tmp_path / "outside.yaml"
    assert moved.open_round == 0
    assert moved.warnings == ()


def test_a_run_that_was_moved_away_is_a_warning_not_an_error(tmp_path: Path):
    _edit(tmp_path, 'name = "x"\n[open]\nrun = "uploads/gone"\n')
    assert "does not exist" in open_project(tmp_path).warnings[0]


def test_a_field_can_be_cleared(tmp_path: Path):
    project = create_project(tmp_path, "x", goal_value=2200.0)
    assert save(replace(project, goal_value=None)).goal_value is None
    assert "value" not in (tmp_path / "perfkit.toml").read_text(encoding="utf-8")


def test_two_writers_of_one_key_get_an_error_with_both_values(tmp_path: Path):
    mine = create_project(tmp_path, "x", goal_value=2000.0)
    save(replace(open_project(tmp_path), goal_value=2400.0))
    with pytest.raises(InputError) as error:
        save(replace(mine, goal_value=2200.0))
    assert "2200.0" in str(error.value)
    assert "2400.0" in str(error.value)
    assert open_project(tmp_path).goal_value == 2400.0


def test_two_writers_of_different_keys_both_win(tmp_path: Path):
    mine = create_project(tmp_path, "x")
    remember(open_project(tmp_path), "warm_up_steps", 2)
    save(replace(open_project(tmp_path), name="theirs"))
    merged = save(replace(mine, goal_value=2200.0))
    assert (merged.name, merged.goal_value, merged.pages["warm_up_steps"]) == ("theirs", 2200.0, 2)


def test_remembering_does_not_hide_a_conflict_of_a_later_save(tmp_path: Path):
    mine = create_project(tmp_path, "x", goal_value=2000.0)
    save(replace(open_project(tmp_path), goal_value=2400.0))
    mine = remember(mine, "unit", "ms")
    assert save(replace(mine, open_round=3)).goal_value == 2400.0
    with pytest.raises(InputError, match="goal"):
        save(replace(mine, goal_value=2200.0))


def test_pages_remember_scalars_and_forget(tmp_path: Path):
    project = create_project(tmp_path, "x")
    for key, value in {"unit": "ms", "step": 3, "limit": 0.5, "recursive": True}.items():
        project = remember(project, key, value)
    assert open_project(tmp_path).pages == {"unit": "ms", "step": 3, "limit": 0.5, "recursive": True} == project.pages
    assert remember(project, "unit", None).pages == open_project(tmp_path).pages
    assert "unit" not in open_project(tmp_path).pages


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [1], {"a": 1}, 2**63, "x" * 10_001, "\ud800", b"x"])
def test_values_that_are_no_scalars_are_not_remembered(tmp_path: Path, value: object):
    project = create_project(tmp_path, "x")
    with pytest.raises(InputError, match="must be one text, number or flag"):
        remember(project, "key", value)
    assert open_project(tmp_path).pages == {}


def test_read_only_by_setting_writes_nothing_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    create_project(tmp_path, "x")
    before = (tmp_path / "perfkit.toml").read_bytes()
    monkeypatch.setenv("PERFKIT_READ_ONLY", "1")
    project = open_project(tmp_path)
    assert project.read_only
    assert "PERFKIT_READ_ONLY" in project.warnings[0]
    assert remember(project, "unit", "ms").pages == {"unit": "ms"}
    with pytest.raises(InputError, match="read-only"):
        save(replace(project, name="y"))
    with pytest.raises(InputError, match="PERFKIT_READ_ONLY"):
        create_project(tmp_path / "new", "z")
    assert (tmp_path / "perfkit.toml").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_folder_that_cannot_be_written_opens_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    create_project(tmp_path, "x")
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    project = open_project(tmp_path)
    assert project.read_only
    assert "cannot be written by this user" in project.warnings[0]


def test_the_nearest_parent_with_a_project_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    create_project(tmp_path / "a", "x")
    deep = tmp_path / "a" / "rounds" / "01"
    deep.mkdir(parents=True)
    assert find_project(deep) == tmp_path / "a"
    monkeypatch.chdir(deep)
    assert find_project() == tmp_path / "a"
    assert find_project(tmp_path) is None


def test_the_chosen_project_wins_and_is_not_left_for_a_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    create_project(tmp_path, "parent")
    create_project(tmp_path / "b", "chosen")
    monkeypatch.setenv("PERFKIT_PROJECT", str(tmp_path / "b"))
    assert find_project(tmp_path) == tmp_path / "b"
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PERFKIT_PROJECT", str(tmp_path / "empty"))
    assert find_project(tmp_path) is None


def test_a_lock_of_a_living_writer_is_named_and_waited_for(tmp_path: Path):
    with (
        locked(tmp_path),
        pytest.raises(InputError, match=f"process {os.getpid()} on {socket.gethostname()}"),
        locked(tmp_path, wait_s=0.05),
    ):
        pass
    assert not (tmp_path / ".lock").exists()


def test_a_lock_is_stale_after_30_s_or_when_its_process_has_ended(tmp_path: Path):
    lock = tmp_path / ".lock"
    lock.write_text(json.dumps({"pid": os.getpid(), "host": "elsewhere", "token": "t"}), encoding="utf-8")
    with pytest.raises(InputError, match="elsewhere"), locked(tmp_path, wait_s=0.05):
        pass
    old_s = time.time() - 31
    os.utime(lock, (old_s, old_s))
    with locked(tmp_path, wait_s=0.05):
        pass
    ended = multiprocessing.get_context("spawn").Process(target=int)
    ended.start()
    ended.join()
    lock.write_text(json.dumps({"pid": ended.pid, "host": socket.gethostname(), "token": "t"}), encoding="utf-8")
    with locked(tmp_path, wait_s=0.05):
        pass
    assert [path.name for path in tmp_path.iterdir()] == []


def _remember_many(folder: Path, writer: int) -> None:
    for index in range(10):
        remember(open_project(folder), f"w{writer}.{index}", index)


def test_no_remembered_value_is_lost_when_processes_write_at_once(tmp_path: Path):
    create_project(tmp_path, "x")
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_remember_many, args=(tmp_path, writer)) for writer in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(30)
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    assert len(open_project(tmp_path).pages) == 30


def test_sample_paths_are_resolved_in_the_folder(tmp_path: Path):
    _edit(tmp_path, 'name = "x"\n[samples]\ncase = "llama2-13b"\n[samples.paths]\nprofile = "samples/run"\n')
    project = open_project(tmp_path)
    assert project.sample_case == "llama2-13b"
    assert sample_paths(project) == {"profile": tmp_path / "samples" / "run"}
    assert sample_paths(create_project(tmp_path / "q", "y")) == {}
