"""Manifests of containers, of Kubernetes (pods, jobs, `PyTorchJob`) and of Compose, as the shell script that their containers run.

Of a container `command` and `args` (Kubernetes), or `entrypoint` and `command` (Compose), are one command line, and `env` or
`environment` its variables. What the cluster fills in (`valueFrom`, `envFrom`) is not known here.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import yaml

_MANIFEST = re.compile(r"^(?:apiVersion[ \t]*:[ \t]*\S|services[ \t]*:[ \t]*$)", re.MULTILINE)
_CONTAINERS = ("containers", "initContainers")
_VARIABLES = ("env", "environment")
_COMMANDS = ("entrypoint", "command", "args")
"""In the order in which the words of the command line stand."""
_SHELL = re.compile(r"(?:.*/)?(?:ba|z)?sh")

Lines = dict[int, list[str]]


def as_script(text: str) -> str:
    """A manifest as a shell script, everything on the line on which it stands; any other text as it is."""
    if not _MANIFEST.search(text):
        return text
    lines: Lines = {}
    try:
        for document in yaml.compose_all(text, Loader=yaml.SafeLoader):
            for container in _containers(document):
                _write(container, lines)
    except (yaml.YAMLError, RecursionError):
        return text
    if not lines:
        return text
    count = max(len(text.splitlines()), *lines) if lines else 0
    return "\n".join("; ".join(lines.get(number, ())) for number in range(1, count + 1)) + "\n"


def _containers(root: yaml.Node | None) -> Iterator[dict[str, yaml.Node]]:
    """The keys of the containers of a document, in their order; an alias is looked at where it is defined."""
    waiting, seen = [root], set()
    while waiting:
        node = waiting.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        parts = _parts(node)
        for name in _CONTAINERS:
            yield from (_parts(one) for one in _items(parts.get(name)) if isinstance(one, yaml.MappingNode))
        yield from (_parts(one) for one in _parts(parts.get("services")).values())
        waiting += reversed([*parts.values(), *_items(node)])


def _parts(node: yaml.Node | None) -> dict[str, yaml.Node]:
    """What stands under the names of a mapping; nothing of anything else."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return {key.value: value for key, value in pairs if isinstance(key, yaml.ScalarNode)}


def _items(node: yaml.Node | None) -> list[yaml.Node]:
    return node.value if isinstance(node, yaml.SequenceNode) else []


def _write(container: dict[str, yaml.Node], lines: Lines) -> None:
    for name in _VARIABLES:
        for line, assigned, value in _variables(container.get(name)):
            lines.setdefault(line, []).append(f"export {assigned}={shlex.quote(' '.join(value.split()))}")
    words = [word for name in _COMMANDS for word in _words(container.get(name))]
    if len(words) > 2 and _SHELL.fullmatch(words[0].value) and re.fullmatch(r"-[a-z]*c", words[1].value):
        _write_script(words[2], lines)
    elif words:
        _write_command(words, lines)


def _variables(node: yaml.Node | None) -> Iterator[tuple[int, str, str]]:
    """Line, name and value: of a list of names and values, of a list of `NAME=value`, or of a mapping."""
    given = [(value, name, value.value) for name, value in _parts(node).items() if isinstance(value, yaml.ScalarNode)]
    for one in _items(node):
        parts = _parts(one)
        if isinstance(one, yaml.ScalarNode) and "=" in one.value:
            name, _, text = one.value.partition("=")
            given.append((one, name, text))
        elif isinstance(named := parts.get("name"), yaml.ScalarNode) and isinstance(value := parts.get("value"), yaml.ScalarNode):
            given.append((value, named.value, value.value))
    for place, name, text in given:
        if re.fullmatch(r"[A-Za-z_]\w*", name):
            yield place.start_mark.line + 1, name, text


def _words(node: yaml.Node | None) -> list[yaml.ScalarNode]:
    given = [node] if isinstance(node, yaml.ScalarNode) else _items(node)
    return [word for word in given if isinstance(word, yaml.ScalarNode) and word.value.strip()]


def _write_script(script: yaml.ScalarNode, lines: Lines) -> None:
    """The script of a shell, line by line where it stands so."""
    first = script.start_mark.line + (2 if script.style in ("|", ">") else 1)
    for number, line in enumerate(script.value.splitlines(), first):
        lines.setdefault(number, []).append(line)


def _write_command(words: list[yaml.ScalarNode], lines: Lines) -> None:
    """One command: each word on its line, but those that stand above something else, which come to the first of the last part."""
    at = [word.start_mark.line + 1 for word in words]
    begin = at[-1]
    for line in reversed(at):
        if line > begin or any(between in lines for between in range(line, begin)):
            break
        begin = line
    by_line: dict[int, list[str]] = {}
    for word, line in zip(words, at, strict=True):
        by_line.setdefault(max(begin, line), []).append(word.value.strip() if len(words) == 1 else _quoted(word.value))
    last = max(by_line)
    for line in range(begin, last + 1):
        lines.setdefault(line, []).append(" ".join(by_line.get(line, ())) + (" \\" if line < last else ""))


def _quoted(word: str) -> str:
    """A word as a shell reads it, where variables that Kubernetes puts in (`$(NAME)`) are put in by it."""
    text = re.sub(r"\$\(([A-Za-z_]\w*)\)", r"${\1}", " ".join(word.split()))
    return '"' + text.replace('"', '\\"') + '"' if "$" in text else shlex.quote(text)
