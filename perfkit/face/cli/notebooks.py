"""List a project's own copies of the pages and what newer pages change in them; nothing is overwritten without being kept.

`perfkit serve --lab` makes the copies. With the number of a page its difference to the page of this perfkit is printed, and with
--take the new page stands in the place of the copy, which is kept beside it.

example: perfkit notebooks --folder my-demo
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from perfkit.core import texts
from perfkit.core.texts import told
from perfkit.face.cli._command import Command
from perfkit.face.cli._screen import say


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("page", metavar="PAGE", nargs="?", help="the number of a page (11) or its name")
    parser.add_argument("--folder", metavar="PROJECT", default=".", help="the tuning project (default: this folder)")
    parser.add_argument("--take", action="store_true", help="put the page of this perfkit in the place of the copy")
    parser.add_argument("--json", action="store_true", help="the list as JSON")


def _run(arguments: argparse.Namespace) -> int:
    from perfkit import __version__
    from perfkit.core.errors import InputError
    from perfkit.face.cli._document import print_document
    from perfkit.project.notebooks import copies, difference, take

    project = Path(arguments.folder).expanduser().resolve()
    if not project.is_dir():
        raise InputError(arguments.folder, ["no such folder"])
    if arguments.page is None and arguments.take:
        raise InputError("--take", ["needs the number of a page, for example: perfkit notebooks 11 --take"])
    if arguments.page is not None:
        if arguments.take:
            kept = take(project, arguments.page, version=__version__)
            say(sys.stdout, texts.say("taken; the copy from before is {kept}", kept=str(kept)))
        else:
            say(sys.stdout, difference(project, arguments.page) or texts.say("no difference"))
        return 0
    found = copies(project)
    if arguments.json:
        print_document(
            [{"page": copy.name, "version": copy.version, "state": copy.state, "file": str(copy.file)} for copy in found]
        )
    elif not found:
        form = "no copies in {project}; make them with: perfkit serve {folder} --lab"
        say(sys.stdout, texts.say(form, project=str(project), folder=arguments.folder))
    for copy in () if arguments.json else found:
        say(sys.stdout, f"{copy.name:24} {copy.version or '-':10} {told(copy.state)}")
    return 0


COMMAND = Command(name="notebooks", add=_add, run=_run)
