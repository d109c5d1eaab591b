"""Completion scripts of shells, made of the parser: commands, what follows them, options and the words that options take.

Scripts are text without a call of perfkit, so that a press of the Tab key costs nothing. Where no word is known, the shell
completes files. zsh runs the script of bash through its own bashcompinit.
"""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.core import catalog
from perfkit.face.cli._devices import FORM
from perfkit.face.cli._parser import Parser

SHELLS = ("bash", "zsh", "fish")
_BASH = """_perfkit() {{
    local word path="" at=1
    while [ "$at" -lt "$COMP_CWORD" ]; do
        word="${{COMP_WORDS[at]}}"
        case "$path $word" in {paths}) path="$path $word" ;; esac
        at=$((at + 1))
    done
    local words=""
    case "$path ${{COMP_WORDS[COMP_CWORD-1]}}" in
{values}
        *)
            case "$path" in
{words}
            esac ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _perfkit perfkit
"""


def completion(parser: Parser, shell: str) -> str:
    """The script for one of `SHELLS`."""
    if shell == "fish":
        return "\n".join(_fish(parser)) + "\n"
    start = "autoload -U +X bashcompinit && bashcompinit\n" if shell == "zsh" else ""
    return start + _bash(parser)


def _tree(parser: Parser, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Parser]]:
    """Every parser with the words that lead to it."""
    yield path, parser
    for word, part in parser.parts().items():
        yield from _tree(part, (*path, word))


def _values(parser: Parser) -> dict[str, tuple[str, ...] | None]:
    """What follows each option: words, () for a file or anything, None for nothing at all."""
    devices = tuple(name for name in catalog.hardware() if " " not in name)
    found: dict[str, tuple[str, ...] | None] = {}
    for spelling, action in parser.options().items():
        words = devices if action.metavar == FORM else tuple(map(str, action.choices or ()))
        found[spelling] = None if action.nargs == 0 else words
    return found


def _bash(parser: Parser) -> str:
    tree = list(_tree(parser))
    values, words = [], []
    for path, part in tree:
        name = "".join(f" {word}" for word in path)
        for option, taken in _values(part).items():
            if taken is not None:
                values.append(f"        '{name} {option}') words='{' '.join(taken)}' ;;")
        following = (*part.parts(), *(option for option in _values(part) if option.startswith("--")))
        words.append(f"                '{name}') words='{' '.join(following)}' ;;")
    paths = "|".join(f"' {' '.join(path)}'" for path, _ in tree if path)
    return _BASH.format(paths=paths, values="\n".join(values), words="\n".join(words))


def _fish(parser: Parser) -> Iterator[str]:
    for path, part in _tree(parser):
        seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in path)
        others = f"not __fish_seen_subcommand_from {' '.join(part.parts())}" if part.parts() else ""
        condition = "; and ".join(one for one in (seen, others) if one)
        if others:
            yield f"complete -c perfkit -f -n '{condition}' -a '{' '.join(part.parts())}'"
        for spelling, taken in _values(part).items():
            flag = f"-l {spelling[2:]}" if spelling.startswith("--") else f"-s {spelling[1:]}"
            takes = "" if taken is None else f" -x -a '{' '.join(taken)}'" if taken else " -r"
            where = f" -n '{seen}'" if seen else ""
            yield f"complete -c perfkit{where} {flag}{takes}"
