"""Repairs: what copying and character recognition do to a text, undone where only one reading is possible, and said.

Comments, and lines of prose in Chinese, keep their full-width punctuation: it is theirs.
"""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass
from string import ascii_letters

from perfkit.core.texts import say

INVISIBLE = dict.fromkeys(map(ord, "\ufeff\u200b\u200c\u200d\u2060\u00ad"), None)
SPACES = dict.fromkeys(map(ord, "\u00a0\u2002\u2003\u2007\u2009\u202f\u3000"), " ")
_WIDE_LETTERS = "ＡＢＣＤＥＦＧＨＩＪＫＬＭＮＯＰＱＲＳＴＵＶＷＸＹＺａｂｃｄｅｆｇｈｉｊｋｌｍｎｏｐｑｒｓｔｕｖｗｘｙｚ"
WIDE = str.maketrans(
    _WIDE_LETTERS + "：，；（）［］｛｝【】＝．％＋－＊／＜＞＂＇＿“”‘’、０１２３４５６７８９",
    ascii_letters.swapcase() + ":,;()[]{}[]=.%+-*/<>\"'_\"\"'',0123456789",
)
_IDEOGRAPH = re.compile(r"[\u4e00-\u9fff]")
_BEHIND_LIST = re.compile(r"^(\s*[^#\n]*?:\s*\[[^\[\]#]*(?:\[[^\[\]#]*\][^\[\]#]*)*\])\s*([^\s,#\]\)}][^#\n]*?)(\s*(?:#.*)?)$")
_LETTERS_IN_NUMBER = re.compile(r"(?<![\w.])(?=[0-9OolI]*\d)([0-9OolI]*[OolI][0-9OolI]*)(?![\w.])")
_FENCE = re.compile(r"^\s*(?:```|~~~)\s*[\w-]*\s*$")
_PROMPT = re.compile(r"\s*(?:\[[^\]\n]*@[^\]\n]*\]\s*[#$]|\$|[\w.-]+@[\w.-]+:[^\s#$]*[#$]|>>>)\s+(?=\S)")
_DASH = re.compile(r"(\s*)([\u2013\u2014])(?=[a-z])")
_DIGITS = str.maketrans("OolI", "0011")
_MISREAD = re.compile(r"(?<=:)(\s*)(Ture|Trne|Treu|True[.;]|Fa[1I]se|Faise|Flase|Fasle|Fales|False[.;])(?=\s*(?:#|$))")
"""Words for yes and no as they are misread or mistyped."""
_TAB_BEHIND = re.compile(r"^(\s*[\w.'\"-]+:)[ ]*\t\s*")
_QUOTED = re.compile(r"^\s*>(?: |$)")


@dataclass(frozen=True, slots=True)
class Repaired:
    """A text after repair: the same number of lines, and what was done, one sentence a line that changed."""

    text: str
    notes: tuple[str, ...]


def readable(text: str) -> Repaired:
    """Repairs that hold in every kind of fragment: invisible characters, odd spaces, full-width punctuation, fences, prompts.

    Numbers of lines are taken away where all lines have them one after the other, of a diff the lines that are no more.
    """
    lines: list[str] = []
    notes: list[str] = []
    plain = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for undone, note in (
        (_without_numbers(plain), "numbers of lines are left out"),
        (_newer(plain), "a diff: its new lines are read"),
        (_unquoted(plain), "marks of a quotation are left out"),
    ):
        if undone is not None:
            plain = undone
            notes.append(note)
    for number, line in enumerate(plain, 1):
        fixed, changes = _readable(line)
        lines.append(fixed)
        notes += [say("line {line}: {change}", line=str(number), change=change) for change in changes]
    return Repaired("\n".join(lines), tuple(notes))


def _without_numbers(lines: list[str]) -> list[str] | None:
    found = [re.match(r"\s*(\d+)(?:[|:.)]|\s)\s?(.*)$", line) for line in lines if line.strip()]
    numbers = [int(one[1]) for one in found if one]
    counted = len(numbers) > 1 and len(numbers) == len(found) and numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    rest = iter([one[2] for one in found if one])
    return [next(rest) if line.strip() else line for line in lines] if counted else None


def _newer(lines: list[str]) -> list[str] | None:
    """The lines of a unified diff as they are after it, at their places; None for what is none."""
    if {line[:1] for line in lines if line} - {"+", "-", " ", "@"} or not {"+", "-"} <= {line[:1] for line in lines}:
        return None
    return ["" if line[:1] in ("-", "@") or line.startswith("+++") else line[1:] for line in lines]


def _unquoted(lines: list[str]) -> list[str] | None:
    quoted = any(lines) and all(_QUOTED.match(line) for line in lines if line.strip())
    return [_QUOTED.sub("", line) for line in lines] if quoted else None


def braced(text: str) -> Repaired:
    """Members of a JSON object or a Python dict, copied without its braces or the first one, with these; other text as it is."""
    body = text.strip().rstrip(",")
    if not re.match(r"""(["'])[\w.-]+\1\s*:""", body):
        return Repaired(text, ())
    whole = next((one for one in ("{" + body + "}", "{" + body) if _is_object(one)), "")
    if not whole:
        return Repaired(text, ())
    return Repaired(
        text.replace(body, whole, 1).rstrip().rstrip(","), ("members of an object without its braces: these are added",)
    )


def _is_object(text: str) -> bool:
    """Whether a text is one JSON object or one Python dict."""
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        pass
    try:
        return isinstance(ast.literal_eval(text), dict)
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return False


def without_hanging(text: str) -> Repaired:
    """The text with its first lines moved left where they stand deeper than a key below them: their parent was not copied."""
    lines = text.split("\n")
    depths = [len(line) - len(line.lstrip()) for line in lines if line.strip() and not line.lstrip().startswith("#")]
    first, outer = next(iter(depths), 0), min(depths, default=0)
    if first <= outer:
        return Repaired(text, ())
    end = next(at for at, line in enumerate(lines) if line.strip() and len(line) - len(line.lstrip()) < first)
    moved = [line[first - outer :] if line.strip() else line for line in lines[:end]]
    change = "stands below a key that is not in the text; it is read by itself"
    return Repaired("\n".join([*moved, *lines[end:]]), (say("line {line}: {change}", line="1", change=change),))


def as_yaml(text: str) -> Repaired:
    """Repairs of keys and values: tabs at the start of a line, rubbish behind a closed list, letters in numbers."""
    lines: list[str] = []
    notes: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        fixed, changes = _as_yaml(line)
        lines.append(fixed)
        notes += [say("line {line}: {change}", line=str(number), change=change) for change in changes]
    return Repaired("\n".join(lines), tuple(notes))


def digits_of(text: str) -> str:
    """The whole number that a text is where letters were read for its digits (`4O96`); "" for others, as a level `O1`."""
    return text.translate(_DIGITS) if text[:1].isdecimal() and _LETTERS_IN_NUMBER.fullmatch(text) else ""


def _as_yaml(line: str) -> tuple[str, list[str]]:
    changes: list[str] = []
    fixed = line
    indent = line[: len(line) - len(line.lstrip())]
    if "\t" in indent:
        fixed = indent.expandtabs(2) + line.lstrip()
        changes.append("indented with a tab, which YAML refuses; two spaces stand for each")
    if _TAB_BEHIND.match(fixed):
        fixed = _TAB_BEHIND.sub(r"\1 ", fixed)
        changes.append("a tab behind the colon, which PyYAML refuses; a space stands for it")
    if found := _BEHIND_LIST.match(fixed):
        fixed = found[1] + found[3]
        changes.append(say("{text} behind the closed list is left out", text=repr(found[2].strip())))
    if word := _MISREAD.search(fixed):
        read = "True" if word[2].startswith("T") else "False"
        changes.append(say("{text} is read as {read}", text=repr(word[2]), read=repr(read)))
        fixed = f"{fixed[: word.start(2)]}{read}{fixed[word.end(2) :]}"
    key, colon, value = fixed.partition(":")
    code, comment = _without_comment(value)
    quoted = "'" in code or '"' in code
    numbers = code if quoted else _LETTERS_IN_NUMBER.sub(lambda match: match[1].translate(_DIGITS), code)
    if colon and numbers != code:
        changes.append(say("{text} is read as {read}", text=repr(code.strip()), read=repr(numbers.strip())))
        fixed = f"{key}:{numbers}{comment}"
    return fixed, changes


def _readable(line: str) -> tuple[str, list[str]]:
    changes: list[str] = []
    if _FENCE.match(line):
        return "", []
    if prompt := _PROMPT.match(line):
        changes.append("the prompt of a shell is left out")
        line = line[prompt.end() :]
    if dash := _DASH.match(line):
        changes.append(say("{text} is read as {read}", text=dash[2], read="--"))
        line = dash[1] + "--" + line[dash.end() :]
    plain = line.translate(INVISIBLE)
    if plain != line:
        changes.append("invisible characters are left out")
    spaced = plain.translate(SPACES)
    code, comment = _without_comment(spaced)
    if not _IDEOGRAPH.search(code) and (wide := code.translate(WIDE)) != code:
        found = "".join(dict.fromkeys(one for one in code if one.translate(WIDE) != one))
        changes.append(say("full-width punctuation {text} is read as {read}", text=found, read=found.translate(WIDE)))
        code = _spaced_keys(wide)
    return code + comment, changes


def _spaced_keys(code: str) -> str:
    """A space behind the colons of keys, also in braces, which full-width ones do not need."""
    return re.sub(r"((?:^|[{,])\s*[\w.'\"\\]+):(?=[^\s:/\\])", r"\1: ", code)


def _without_comment(line: str) -> tuple[str, str]:
    """A line split before a comment that stands behind code, with the spaces before it."""
    if found := re.search(r"(?:^|(?<=\s))\s*[#＃].*$", line):
        start = found.start()
        return line[:start], line[start:].replace("＃", "#", 1)
    return line, ""
