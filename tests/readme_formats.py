"""The README's list of formats, written from the formats themselves: `python -m tests.readme_formats` renews it."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from perfkit.core import discover

README = Path(__file__).resolve().parents[1] / "README.md"
BEGIN, END = "<!-- formats: renewed by `python -m tests.readme_formats` -->", "<!-- end of formats -->"


def listed() -> str:
    titles = sorted((known.title for known in discover.constants("perfkit.record.formats", "FORMAT")), key=str.lower)
    sentence = f"Formats, recognised by content ([docs/formats.md](docs/formats.md)): {'; '.join(titles)}."
    return "\n".join([BEGIN, *textwrap.wrap(sentence, 130, break_long_words=False, break_on_hyphens=False), END])


def renewed(text: str) -> str:
    return re.sub(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: listed(), text, flags=re.DOTALL)


if __name__ == "__main__":
    README.write_text(renewed(README.read_text(encoding="utf-8")), encoding="utf-8")
