"""Uploads: the files that are on their way from a visitor to the fields of one panel, one a field."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from perfkit.core.errors import InputError
from perfkit.face.widgets._upload import Upload


class Step(NamedTuple):
    """What to answer the page (None: nothing), and what places the file once it is whole, which takes time and may refuse it."""

    answer: dict[str, Any] | None
    finish: Callable[[], Path] | None = None


class Uploads:
    """Files by the field that they are for; `fields` are those that take one."""

    def __init__(self, panel: str, fields: frozenset[str]) -> None:
        self._panel, self._fields = panel, fields
        self._coming: dict[str, Upload] = {}

    def step(self, message: dict[str, Any], parts: list[memoryview]) -> Step:
        """The next step of an upload: announced ("begin"), a part of it, or given up ("cancel")."""
        name, step = message["name"], message["step"]
        try:
            if step == "begin":
                self._begin(name, str(message["file"]), int(message["bytes"]))
            elif name not in self._coming:
                return Step(None)
            elif step == "cancel":
                self._give_up(name)
                return Step(None)
            upload = self._coming[name]
            for part in parts:
                upload.receive(part)
        except InputError as error:
            self._coming.pop(name, None)
            return Step({"type": "upload", "name": name, "problems": [f"{error.subject}: {text}" for text in error.problems]})
        answer = {"type": "upload", "name": name, "received": upload.num_received}
        if not upload.is_complete:
            return Step(answer)
        del self._coming[name]
        return Step(answer, upload.finish)

    def _begin(self, name: str, file: str, num_bytes: int) -> None:
        if name not in self._fields:
            raise InputError(self._panel, [f"takes no file for {name[:60]!r}"])
        self._give_up(name)
        self._coming[name] = Upload(file, num_bytes)

    def _give_up(self, name: str) -> None:
        if name in self._coming:
            self._coming.pop(name).cancel()
