"""Document: what a command prints with `--json`, which every reader of JSON takes.

JSON has no nan and no infinity (RFC 8259, section 6); Python writes them all the same, and other readers then refuse the whole
document. They are the words "nan", "inf" and "-inf" here, as in every table and file: null says that nothing was measured.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any, TextIO

from perfkit.core.quantity import word


def print_document(document: Any, out: TextIO | None = None) -> None:
    """Print `document` on one line, characters that do not print as escapes."""
    text = json.dumps(_finite(document), ensure_ascii=False, allow_nan=False)
    if not text.isprintable():  # JSON lets DEL, C1 controls and marks of direction stand as they are; terminals obey them
        text = "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)
    print(text, file=out or sys.stdout)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return word(value)
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
