"""What a calibration of one's own changes, as a table."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from perfkit.core import texts
from perfkit.core.units import format_ratio, significant
from perfkit.face.cli._screen import say
from perfkit.face.cli._tables import print_table
from perfkit.predict.calibration.own import Measurement


def print_changes(changes: Sequence[Measurement], target: Path) -> None:
    """Every efficiency that measurements gave, and how the written file is used."""
    rows = [[one.name, significant(one.before), significant(one.after), format_ratio(one.error), one.file] for one in changes]
    print_table(["efficiency", "before", "now", "error left", "file"], rows, sys.stdout)
    form = "written to {target}: perfkit estimate CONFIG --calibration {target}"
    say(sys.stdout, "\n", texts.say(form, target=str(target)))
