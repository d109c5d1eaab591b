"""Demangled: what a person reads of a name that is written for a machine.

Of a C++ function as a compiler names it (Itanium C++ ABI, 5.1) that is the qualified name; arguments of templates are
folded to <…>, and those of the function left out. CANN names a task aclnn, its interface, the operator inside and the kernel,
aclnnInplaceCopy_TensorMoveAiCore_TensorMove: of that the interface is read, and the kernel where it is called otherwise.
"""

from __future__ import annotations

import re

FOLDED = "<…>"
_NUMBER = re.compile(r"\d+")
_SKIPPED = re.compile(r"L[a-z]n?\d+E|[ST]\d*[A-Z]?_|S[a-z]|A\d*_|D[a-z]|L_Z|L(?=\d)|\d*_|[a-zPRKVOC]")
"""Parts of arguments that hold no name: a literal, a substitution, the number of a lambda, a builtin type."""
_OPENS = re.compile("Ul|[NIJXFLZ]")
_NAMELESS = "_GLOBAL__N_1"
_ACLNN = re.compile(r"aclnn([^\W_]+)_[^\W_]+_([^\W_]+)")


def demangled(name: str) -> str:
    """The qualified name in one that is mangled; any other name, and one that is cut off or of an unknown form, as it is."""
    if task := _ACLNN.fullmatch(name):
        interface, kernel = task.groups()
        return interface if interface == kernel else f"{interface}: {kernel}"
    if not name.startswith("_Z"):
        return name
    parts: list[str] = []
    at = 3 if (nested := name[2:3] == "N") else 2
    while at < len(name):
        rest = name[at:]
        if rest[0].isdigit():
            word, at = _identifier(name, at)
            parts.append("(anonymous namespace)" if word == _NAMELESS else word)
        elif rest.startswith("St"):
            parts, at = [*parts, "std"], at + 2
        elif rest[0] == "I" and parts:
            if (at := _closed(name, at)) < 0:
                return name
            parts[-1] += FOLDED
        elif rest[0] in "LKVr" and nested:
            at += 1
        else:
            break
        if not nested and parts[-1] != "std" and name[at : at + 1] != "I":
            break
    whole = parts and "" not in parts and (not nested or name[at : at + 1] == "E")
    return "::".join(parts) if whole else name


def _identifier(name: str, at: int) -> tuple[str, int]:
    """The identifier at a place, "" if it is cut off, and where it ends."""
    number = _NUMBER.match(name, at)
    length = int(number[0][:6]) if number else 0
    start = number.end() if number else at
    word = name[start : start + length]
    return (word if len(word) == length else ""), start + length


def _closed(name: str, at: int) -> int:
    """Where arguments that begin at a place end; -1 if they do not, or are of a form that is not known here."""
    depth = 0
    while at < len(name):
        if name[at] == "E":
            depth, at = depth - 1, at + 1
            if not depth:
                return at
        elif skipped := _SKIPPED.match(name, at):
            at = skipped.end()
        elif name[at].isdigit():
            at = _identifier(name, at)[1]
        elif opened := _OPENS.match(name, at):
            depth, at = depth + 1, opened.end()
        else:
            return -1
    return -1
