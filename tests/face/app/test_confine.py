"""64 attempts at a file outside of the roots: none reaches it, whatever the way in; what lies inside opens."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from perfkit.core import _landlock
from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.core.roots import checked, is_allowed, roots
from perfkit.face.widgets._files import list_folder
from perfkit.face.widgets.control import PathPicker
from perfkit.face.widgets.panel import Panel
from tests.panels import open_panel

SECRET = "the secret of another user"


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A server's machine: a project with a recording, and beside it what visitors must not see."""
    project, secret = tmp_path / "project", tmp_path / "secret"
    (project / "uploads" / "run").mkdir(parents=True)
    (project / "inside.log").write_text("inside")
    (secret / "deep").mkdir(parents=True)
    (secret / "file.log").write_text(SECRET)
    (tmp_path / "project-2").mkdir()
    (tmp_path / "project-2" / "file.log").write_text(SECRET)
    (project / "uploads" / "run" / "link.json").symlink_to(secret / "file.log")
    (project / "link").symlink_to(secret)
    (project / "chain").symlink_to(project / "link")
    (project / "loop").symlink_to(project / "loop")
    monkeypatch.setenv("PERFKIT_APP", "1")
    monkeypatch.setenv("PERFKIT_PROJECT", str(project))
    monkeypatch.setenv("PERFKIT_CACHE", str(tmp_path / "cache"))
    for name in ("PERFKIT_ROOTS", "PERFKIT_NAMED"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def outside(machine: Path) -> list[str]:
    """Spellings of what lies outside."""
    project, file = machine / "project", machine / "secret" / "file.log"
    return [
        str(file),
        f"{project}/../secret/file.log",
        f"{project}/uploads/../../secret/file.log",
        f"{project}/./../secret/./file.log",
        f"{project}//..//secret//file.log",
        f"{project}/link/file.log",
        f"{project}/chain/file.log",
        f"{project}/uploads/run/link.json",
        f"{machine}/project-2/file.log",
        f"{project}/loop",
        "/etc/passwd",
        "/proc/self/environ",
        "/".join(("", "proc", "self", "root", "etc", "passwd")),
        f"/proc/self/cwd/../../../../../../../../{file}",
        "~/.bashrc",
        "/",
    ]


def test_the_roots_are_the_project_the_samples_and_what_was_named(machine, monkeypatch):
    assert roots() == (machine / "project", data_folder().resolve())
    monkeypatch.setenv("PERFKIT_NAMED", str(machine / "secret" / "file.log"))
    assert is_allowed(machine / "secret" / "file.log")
    assert not is_allowed(machine / "secret" / "deep")
    monkeypatch.delenv("PERFKIT_APP")
    monkeypatch.delenv("PERFKIT_NAMED")
    assert roots() == (), "a shell or a notebook has the machine anyway"


@pytest.mark.parametrize("number", range(16))
def test_a_name_that_leads_outside_is_refused_and_its_folder_is_not_told(machine, number):
    name = outside(machine)[number]
    with pytest.raises(InputError) as error:
        checked(name)
    assert str(machine) not in str(error.value)
    with pytest.raises(InputError):
        PathPicker("run").accept(name, {})


@pytest.mark.parametrize("number", range(16))
def test_the_picker_lists_nothing_outside(machine, number):
    listing = list_folder(outside(machine)[number])
    listed = [Path(entry["path"]).resolve() for entry in listing["entries"] if not entry["name"].startswith("link")]
    assert is_allowed(listing["folder"])
    assert all(is_allowed(path) for path in listed if path.name not in ("chain", "loop"))


@pytest.mark.parametrize("name", ["run.", "run..", ".run", "run.x", "RUN", "", "run\0", "start", "__class__", "run.__class__"])
def test_a_name_that_is_no_control_changes_nothing(machine, name, capfd):
    seen = []
    panel = Panel(
        compute=lambda state: seen.append(dict(state)),
        view=lambda _: ({}, {}, ""),
        start={"run": ""},
        controls=(PathPicker("run"),),
        shared=("run",),
    )
    view = open_panel(panel)
    view.wait()
    view._dispatch(view, {"type": "set", "seq": 1, "values": {name: str(machine / "secret" / "file.log")}}, [])
    with pytest.raises(InputError):
        view.wait()
    assert all(state == {"run": ""} for state in seen)
    assert view.state == {"run": ""}


MESSAGES = [
    None,
    [],
    "set",
    {},
    {"type": "eval", "code": "1"},
    {"type": "set", "seq": "1", "values": {}},
    {"type": "set", "seq": 1, "values": [["run", "x"]]},
    {"type": "set", "seq": 1, "values": {"run": {"a": {"b": {"c": {"d": 1}}}}}},
    {"type": "browse", "name": "run", "folder": ["/"]},
    {"type": "browse", "name": "run", "folder": "/", "root": "/"},
    {"type": "upload", "step": "finish", "name": "run"},
    {"type": "upload", "step": "begin", "name": "other", "file": "x", "bytes": 1},
    {"type": "need-module", "name": "../_view.py"},
    {"type": "select", "chart": "none", "datum": {}},
    {"type": "row", "table": "none", "row": 0},
    {"type": "act", "name": "none"},
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: json.dumps(message)[:40])
def test_a_message_that_no_page_sends_changes_nothing(machine, message, capfd):
    picker = (PathPicker("run"),)
    panel = Panel(compute=lambda state: state, view=lambda _: ({}, {}, ""), start={"run": ""}, controls=picker, on_select=dict)
    view = open_panel(panel)
    view.wait()
    view._dispatch(view, message, [])
    view._background.wait(10)
    assert view.state == {"run": ""}
    assert "perfkit refused" in capfd.readouterr().err or view.outcome.get("problems") or view.error is None


def test_no_trait_is_a_pages_to_write(machine):
    view = open_panel(Panel(compute=lambda state: state, view=lambda _: ({}, {}, ""), start={}))
    view.wait()
    view.set_state({"name": "other", "controls": []})
    assert view.name == "panel"


def test_every_message_of_the_browsers_code_is_known():
    from perfkit.face.widgets._messages import TYPES

    folder = Path(__file__).resolve().parents[3] / "js"
    sources = "\n".join(path.read_text() for path in [*folder.glob("src/*.js"), *folder.glob("load/*.js")])
    sent = re.findall(r"send\(\{([^\n]*?type: \"([a-z-]+)\"[^\n]*?)\}", sources)
    assert len(sent) > 25
    for fields, kind in sent:
        names = set(re.findall(r"(?:^|, )([a-z]+)(?=[,:}]|$)", fields)) - {"type"}
        assert names <= set(TYPES[kind]), (kind, names)


def test_a_kernel_that_cannot_be_confined_ends():
    code = (
        "from perfkit.core import confine\n"
        "def broken(): raise KeyError('no account')\n"
        "confine.confine = broken\n"
        "confine.confine_or_end()\n"
        "print('goes on')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "no account" in done.stderr


TRIES = """
import json, os, sys
from perfkit.core.confine import confine
confine()
import pathlib, sqlite3, subprocess
def by_shell(name):
    if name.startswith("/proc/self/environ"): raise OSError("a program may read its own environment; visitors start none")
    return subprocess.run(["/bin/cat", name], capture_output=True, text=True, check=True).stdout
def by_listing(name): return os.listdir(name)
def by_handle(name): return open(os.open(name, os.O_RDONLY)).read()
def by_database(name): return sqlite3.connect("file:" + name + "?mode=ro", uri=True).execute("select 1 from sqlite_master")
def by_name(name): return pathlib.Path(name).read_text()
ways = [by_name, by_listing, by_handle, by_database, *([by_shell] if sys.argv[1] == "1" else [])]
got = []
for name in json.loads(sys.argv[2]):
    for way in ways:
        try:
            got.append([name, str(way(name))[:60]])
        except Exception as error:
            pass
inside = pathlib.Path(sys.argv[3]).read_text()
import polars, perfkit.face.widgets  # what a kernel loads later
assert [sqlite3.connect(name, uri=True).execute("select 1").fetchone() for name in (":memory:", "file::memory:")] == [(1,), (1,)]
from perfkit.record.load import load
print(json.dumps([got, inside, load(sys.argv[4]).ranks[0] is not None]))
"""


@pytest.mark.slow
def test_a_confined_process_reaches_nothing_outside_by_any_way_and_all_inside(machine):
    """At the moment of opening, links followed: names checked before may have become links since."""
    names = [name for name in outside(machine) if name not in ("~/.bashrc",)]
    names += ["secret", str(machine / "secret"), str(machine / "project" / "link"), "/home", "/root"]
    has_landlock = "1" if _landlock.version() >= 3 else "0"
    sample = str(data_folder() / "traces" / "kineto_resnet")
    inside = str(machine / "project" / "inside.log")
    environment = {**os.environ, "TMPDIR": str(machine / "tmp")}
    (machine / "tmp").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", TRIES, has_landlock, json.dumps(names), inside, sample],
        capture_output=True,
        check=False,
        text=True,
        env=environment,
        cwd=machine,  # outside itself
    )
    assert done.returncode == 0, done.stderr[-2000:]
    got, text, loaded = json.loads(done.stdout)
    assert got == []
    assert (text, loaded) == ("inside", True)


ROUTES = [
    "voila/files/{}",
    "voila/static/{}",
    "voila/templates/lab/{}",
    "voila/labextensions/{}",
    "voila/api/themes/{}",
    "perfkit/static/{}",
    "{}",
    "voila/render/{}",
]
CLIMBS = [
    "../../../../../../../../etc/passwd",
    "..%2f..%2f..%2f..%2f..%2f..%2f..%2fetc%2fpasswd",
    "%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
    "/etc/passwd",
]


def climbing_paths() -> list[str]:
    """32 ways to climb out of what the server serves as files."""
    return [route.format(climb) for route in ROUTES for climb in CLIMBS]


def test_there_are_enough_attempts():
    assert len(climbing_paths()) + 16 + 16 >= 64
