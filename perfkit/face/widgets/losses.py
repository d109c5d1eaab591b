"""Losses: a picker for the losses of a training, of its log or of a table."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from perfkit.core.resources import data_folder
from perfkit.core.roots import checked
from perfkit.core.texts import say
from perfkit.explain.alignment import LossSeries
from perfkit.explain.compare.sides import open_losses
from perfkit.face.widgets import context
from perfkit.face.widgets.entries import Folder
from perfkit.face.widgets.pickers import Picker, make_picker
from perfkit.face.widgets.status import NothingYet
from perfkit.face.widgets.worker import running


def choose_losses(path: str | Path = "", *, name: str, label: str, samples: Mapping[str, str]) -> Picker:
    """The losses of a training: `.value` is its `LossSeries`. It starts with `path`, else with the first of `samples`."""
    first = str(path) or str(data_folder() / next(iter(samples.values())))
    entry = Folder(first, partial(_options, samples=samples), label=label, help="a training log, or a table with step and loss")

    def read(**chosen: str) -> LossSeries:
        if not chosen[name]:
            raise NothingYet("Choose two training logs or tables of losses: the reference, and the training after the change.")
        return open_losses(checked(chosen[name]), running())

    return make_picker(name, label, entry, read, _told, samples=samples)


def _options(_state: object = None, *, samples: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Logs of the project and samples, then tables."""
    return [*context.log_options(), *((label, str(data_folder() / path), "Samples") for label, path in samples.items())]


def _told(series: LossSeries) -> str:
    return say("{series}: {num_steps} steps.", series=series.name, num_steps=len(series.points))
