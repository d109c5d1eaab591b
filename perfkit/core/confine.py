"""Confine: a process that works for visitors opens only what the roots hold, whatever it was asked for.

Names are checked where they come in (`roots.checked`), but a folder may hold links, and a name may become a link after it was
looked at. So every opening of a file and every listing of a folder in the process is checked at that moment, links followed (an
audit hook of Python, which cannot be removed); and on Linux with Landlock the system refuses as well, also to native code and to
child processes.
"""

from __future__ import annotations

import getpass
import os
import re
import sys
import tempfile
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from perfkit.core import _landlock, settings
from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder, notebooks_folder
from perfkit.core.roots import roots

_EVENTS = {"open", "os.listdir", "os.scandir", "sqlite3.connect"}
_SYSTEM = ("/usr/share", "/usr/lib", "/lib", "/lib64", "/etc/localtime", "/etc/timezone", "/etc/mime.types", "/dev", "/sys")
_PROC = re.compile(
    r"/proc(/(meminfo|cpuinfo|stat|loadavg|filesystems|mounts|(self|\d+)(/(task(/.*)?|stat|statm|status|smaps_rollup|cgroup))?))?"
)
"""What says how a process is doing; not its environment, its memory or what it has open."""
_PROGRAMS = ("/proc", "/usr", "/bin", "/etc/ld.so.cache", "/etc/nsswitch.conf", "/etc/ssl", "/etc/hosts", "/etc/resolv.conf")
"""What the system's own libraries read, which Python does not see."""
_confined = False


def confine() -> None:
    """Confine this process for the rest of its life to what the settings name; does nothing where there is no limit."""
    global _confined  # noqa: PLW0603  a hook stays for ever, and one is enough
    if _confined or not roots():
        return
    _confined = True
    tempfile.tempdir = None  # what was found before this process had a folder of its own
    hold = _Hook()
    with suppress(KeyError, OSError):  # in a container the user may have no account
        os.environ.setdefault("LOGNAME", getpass.getuser())  # the list of accounts cannot be read from here on
    _landlock.restrict(read=[*hold.readable, *_PROGRAMS], write=[*hold.own, "/dev"])
    sys.addaudithook(hold)


def confine_or_end() -> None:
    """`confine`, for a kernel that would log an error and go on: it ends instead."""
    try:
        confine()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


class _Hook:
    """Refuses what lies outside. `own` is what perfkit itself writes to."""

    def __init__(self) -> None:
        project = settings.project_folder()
        places = [settings.cache_folder(), Path(tempfile.gettempdir()), *([project] if project else [])]
        self.own = [os.path.realpath(place) for place in places]
        code = [
            sys.prefix,
            sys.base_prefix,
            settings.pages_folder() or notebooks_folder(),
            Path(__file__).parents[1],
            *filter(None, sys.path),
        ]
        self.readable = [
            *map(str, roots()),
            *self.own,
            *(os.path.realpath(str(place)) for place in (*code, data_folder(), *_SYSTEM)),
        ]
        self._inside = tuple(f"{place.rstrip(os.sep)}{os.sep}" for place in self.readable)

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _EVENTS and arguments and isinstance(arguments[0], str | bytes | os.PathLike):
            name = os.fsdecode(arguments[0])
            if event == "sqlite3.connect":
                name = name.removeprefix("file:").partition("?")[0] if name.startswith("file:") else name
                if name == ":memory:":  # wherever the process is: no file
                    return
            self._check(name)

    def _check(self, name: str) -> None:
        place = os.path.realpath(name or ".")
        if not (f"{place}{os.sep}".startswith(self._inside) or _PROC.fullmatch(place)):
            raise InputError(os.path.basename(place), ["lies, or leads, outside of the folders that this server opens"])  # noqa: PTH119
