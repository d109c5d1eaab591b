"""Lesson: the notes of a class as one page of slides: a screen a block, turned with PageDown, also printed one a sheet."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator
from pathlib import Path

from perfkit.core.resources import pages
from perfkit.core.settings import pages_folder
from perfkit.teach import exercises
from perfkit.teach.lesson import Block, blocks

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE = """
html { scroll-snap-type: y mandatory; }
main { max-width: none; padding: 0; }
section { min-height: 100vh; scroll-snap-align: start; display: flex; flex-direction: column; justify-content: center;
  max-width: 60rem; margin: 0 auto; padding: 2rem 1.5rem; break-after: page; }
section h2 { font-size: 34px; border: 0; margin: 0 0 4px; padding: 0; }
section p, section li { font-size: 20px; line-height: 1.45; max-width: none; }
section li { margin: 0 0 6px; }
.when, .small, .small li { color: var(--pk-muted); font-size: 16px; }
.ask { border-inline-start: 6px solid var(--pk-accent); padding: 10px 18px; background: var(--pk-surface); margin: 14px 0; }
"""


def lesson_notes() -> str:
    """The notes of the whole lesson as HTML that requests nothing and runs nothing."""
    style = (Path(__file__).parent / "_report.css").read_text(encoding="utf-8")
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>A lesson with perfkit</title><style>{style}{_STYLE}</style></head><body><main>",
            *(line for block in blocks() for line in _slide(block)),
            "</main></body></html>",
            "",
        ]
    )


def _slide(block: Block) -> Iterator[str]:
    title = html.escape(block.title)
    yield f'<section aria-label="{title}" tabindex="0"><h2>{title}</h2>'
    yield f'<p class="when">minute {block.from_min} to {block.to_min} · {html.escape(_pages(block.pages))}</p>'
    yield _list(block.say)
    if block.ask:
        yield f'<p class="ask">{html.escape(block.ask)}</p>'
    for label, names in (("Exercises", block.exercises), ("For the fast", block.spare)):
        if names:
            yield f'<p class="small">{label}: {html.escape(", ".join(f"{name} {exercises()[name].title}" for name in names))}</p>'
    if block.traps:
        yield f'<div class="small"><p class="small">Traps</p>{_list(block.traps)}</div>'
    yield "</section>"


def _list(lines: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{html.escape(line)}</li>' for line in lines)}</ul>"


def _pages(numbers: Iterable[str]) -> str:
    known = {page.number: page.title for page in pages(pages_folder())}
    return ", ".join(f"page {number} {known.get(number, '')}".rstrip() for number in numbers)
