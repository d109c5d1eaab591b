"""Text: sentences, notes, warnings and copyable blocks on a page; whatever they contain is shown as text."""

from __future__ import annotations

from typing import Literal

from perfkit.face.widgets.view import Content

Style = Literal["text", "heading", "note", "warning", "code"]


class TextView(Content):
    """Blocks of text, each with a style; `update` replaces them."""

    def __init__(self, *blocks: tuple[str, Style]) -> None:
        super().__init__(kind="text", content=_content(blocks))

    def update(self, *blocks: tuple[str, Style]) -> None:
        """Show other blocks in the same place."""
        self.content = _content(blocks)


def text(*paragraphs: str, style: Style = "text") -> TextView:
    """Show paragraphs in one style; "code" adds a copy button and keeps line ends."""
    return TextView(*((paragraph, style) for paragraph in paragraphs))


def _content(blocks: tuple[tuple[str, Style], ...]) -> dict[str, object]:
    return {"blocks": [{"text": text, "style": style} for text, style in blocks]}
