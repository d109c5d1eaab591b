"""What a module of this package states: one command."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Command:
    """One command of the command line; its module's docstring is its help, with an example as the last line.

    `add` declares the arguments; `run` makes one call into the package, prints, and gives the exit code (1 where it found something
    that the user must act on, else 0). Modules import engines inside `run`, so that no command pays for another's.
    """

    name: str
    add: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
