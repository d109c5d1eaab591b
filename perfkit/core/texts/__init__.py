"""Texts: what pages say, in the language of the visitor. English stands in the code; `zh.toml` has the Chinese by it.

`t("Start the round")` gives the text in the language of this process (`PERFKIT_LANGUAGE`), English where there is no other.
`told(sentence)` does it for a sentence with figures and names in it. One that was made by `say` knows its form, by which the
catalogue has it; any other is recognised by its words, which the sections SENTENCES have with places for the rest. Names are not
translated: they are data.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path

from perfkit.core import settings
from perfkit.core.texts._paths import PARTS as PARTS
from perfkit.core.texts._paths import PATH_LABELS as PATH_LABELS
from perfkit.core.texts._paths import words_of_paths
from perfkit.core.texts._said import Said as Said
from perfkit.core.texts._said import capital as capital
from perfkit.core.texts._said import joined as joined
from perfkit.core.texts._said import say as say
from perfkit.core.texts._said import within as within
from perfkit.core.texts._sentences import Sentences

LANGUAGES = {"en": "English", "zh": "中文"}
SENTENCES = ("costs", "sentences", "said", "problems", "words")
"""What a sentence is looked up in, one after the other: clauses that stand in sentences come last."""
_CLAUSE = 3
"""Of spaces: a text with more of them that stands in a sentence is a sentence itself, no name."""
_LONG = 500
"""Of characters: what is longer is hardly said twice."""
BROWSER = "browser"
"""The section of texts that the page's scripts need."""


@cache
def catalogue(language: str) -> Mapping[str, Mapping[str, str]]:
    """The sections of a language, each with texts by their English; none for English itself."""
    if language == "en":
        return {}
    return tomllib.loads((Path(__file__).parent / f"{language}.toml").read_text(encoding="utf-8"))


@cache
def _flat(language: str) -> Mapping[str, str]:
    return {english: text for section in catalogue(language).values() for english, text in section.items()}


def t(text: str, language: str | None = None) -> str:
    """A text in a language, by default that of this process; the text itself where there is none."""
    return _flat(language or settings.language()).get(text, text)


@cache
def _sentences(language: str) -> Sentences:
    sections = catalogue(language)
    return Sentences(_flat(language), *(sections.get(name, {}) for name in SENTENCES))


def told(sentence: str, language: str | None = None) -> str:
    """A sentence with figures or names in it in a language, by default that of this process; itself where there is none."""
    language = language or settings.language()
    if language == "en":
        return sentence
    if isinstance(sentence, Said):
        return sentence.in_words(_flat(language), lambda value: told(value, language) if value.count(" ") > _CLAUSE else value)
    return _remembered(sentence, language) if len(sentence) < _LONG else _sentences(language).told(sentence)


@lru_cache(maxsize=8192)
def _remembered(sentence: str, language: str) -> str:
    return _sentences(language).told(sentence)


def path_words(text: str) -> str:
    """A text with its paths of parts as people read them: in English by their pieces, elsewhere as the catalogue has the whole."""
    return words_of_paths(text) if settings.language() == "en" else text


def for_browser(language: str) -> Mapping[str, str]:
    """The texts that scripts of the page look up."""
    return catalogue(language).get(BROWSER, {})


def markdown(source: str, language: str) -> str:
    """A cell of a page with every line that the catalogue has in a language; marks of headings and lists stay."""
    return "\n".join(_line(line, language) for line in source.split("\n")) if language != "en" else source


def _line(line: str, language: str) -> str:
    for start, end in _MARKS:
        if line.startswith(start) and line.endswith(end) and len(line) > len(start) + len(end):
            return start + t(line[len(start) : len(line) - len(end)], language) + end
    return t(line, language)


_MARKS = (("# ", ""), ("## ", ""), ("- ", ""), ("<details><summary>", "</summary>"))


def english_lines(source: str) -> list[str]:
    """The texts of a cell by which `markdown` looks them up."""
    found = []
    for line in source.split("\n"):
        mark = next(((start, end) for start, end in _MARKS if line.startswith(start) and line.endswith(end)), ("", ""))
        text = line[len(mark[0]) : len(line) - len(mark[1])]
        if text and text != "</details>":
            found.append(text)
    return found
