"""Document: what a command prints with `--json`, which every reader of JSON takes, and those that are kept of recordings.

JSON has no nan and no infinity (RFC 8259, section 6); Python writes them all the same, and other readers then refuse the whole
document. They are the words "nan", "inf" and "-inf" here, as in every table and file: null says that nothing was measured.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from perfkit.core import settings
from perfkit.core.quantity import word


def print_document(document: Any, out: TextIO | None = None) -> None:
    """Print `document` on one line, characters that do not print as escapes."""
    text = json.dumps(_finite(document), ensure_ascii=False, allow_nan=False)
    if not text.isprintable():  # JSON lets DEL, C1 controls and marks of direction stand as they are; terminals obey them
        text = "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)
    print(text, file=out or sys.stdout)


def kept_document(path: str, question: str, make: Callable[[], dict[str, Any]], *, as_json: bool) -> dict[str, Any]:
    """What `make` answers to a question about a recording, or has answered before, as a document or for a person to read."""
    from perfkit.record.documents import document_of

    # A kept document has sentences in English alone, without the form by which they have another language.
    return document_of(path, question, make) if as_json or settings.language() == "en" else make()


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return word(value)
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
