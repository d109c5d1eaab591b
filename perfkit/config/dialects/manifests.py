"""Manifests of containers, of Kubernetes (pods, jobs, `PyTorchJob`) and of Compose, as the shell script that their containers run.

Of a container `command` and `args` (Kubernetes), or `entrypoint` and `command` (Compose), are one command line, and `env` or
`environment` its variables. Of what the cluster fills in, the pods of a `PyTorchJob` are known from its replicas, as its operator
has them (`setPodEnv` in pkg/controller.v1/pytorch/envvar.go of kubeflow/training-operator); `valueFrom` and `envFrom` are not.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import yaml

_MANIFEST = re.compile(r"^(?:apiVersion[ \t]*:[ \t]*\S|services[ \t]*:[ \t]*(?:#.*)?\r?$)", re.MULTILINE)
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
            written: set[int] = set()
            filled = _filled_in(document)
            for container in _containers(document):
                _write(container, lines, written, filled)
    except (yaml.YAMLError, RecursionError):
        return text
    if not lines:
        return text
    count = max(len(text.splitlines()), *lines)
    return "\n".join("; ".join(lines.get(number, ())) for number in range(1, count + 1)) + "\n"


def _containers(root: yaml.Node | None) -> Iterator[yaml.MappingNode]:
    """The containers of a document, in their order and each once; an alias is looked at where it is defined."""
    waiting, seen, given = [root], set[int](), set[int]()
    while waiting:
        node = waiting.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        parts = _parts(node)
        named = [one for name in _CONTAINERS for one in _items(parts.get(name))]
        for one in (*named, *_parts(parts.get("services")).values()):
            if isinstance(one, yaml.MappingNode) and id(one) not in given:
                given.add(id(one))
                yield one
        waiting += reversed([*parts.values(), *_items(node)])


def _parts(node: yaml.Node | None, depth: int = 8) -> dict[str, yaml.Node]:
    """What stands under the names of a mapping, with what it takes over by `<<`; nothing of anything else."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    own = {key.value: value for key, value in pairs if isinstance(key, yaml.ScalarNode)}
    if (base := own.pop("<<", None)) is None or not depth:
        return own
    bases = [_parts(one, depth - 1) for one in (*_items(base), base)]
    return {name: value for parts in (*reversed(bases), own) for name, value in parts.items()}


def _filled_in(root: yaml.Node | None) -> list[tuple[str, str]]:
    """The variables by which the operator of a `PyTorchJob` tells every container how many pods and processes the job has."""
    spec = _parts(_parts(root).get("spec"))
    pods = _parts(spec.get("pytorchReplicaSpecs"))
    counts = [_count(_parts(one).get("replicas")) for one in pods.values()]
    if not any(counts):
        return []
    nodes, each = sum(count or 1 for count in counts), _count(spec.get("nprocPerNode"))
    found = {"PET_NNODES": nodes} | ({"PET_NPROC_PER_NODE": each} if each else {})
    found |= {"WORLD_SIZE": nodes * (each or 1)} if "Master" in pods else {}
    return [(name, str(value)) for name, value in found.items()]


def _count(node: yaml.Node | None) -> int:
    return int(node.value) if isinstance(node, yaml.ScalarNode) and re.fullmatch(r"\d{1,6}", node.value) else 0


def _items(node: yaml.Node | None) -> list[yaml.Node]:
    return node.value if isinstance(node, yaml.SequenceNode) else []


def _write(container: yaml.MappingNode, lines: Lines, written: set[int], filled: list[tuple[str, str]]) -> None:
    parts, here = _parts(container), container.start_mark.line + 1
    groups = [group for name in _COMMANDS if (group := _words(parts.get(name)))]
    words = [word for group in groups for word in group]
    script = _script_of(words)
    # What an alias brings stands where its anchor does, and there it has been written already.
    at = here if any(id(word) in written for word in words) else None
    written.update(map(id, words))
    first = at or (groups[-1][0].start_mark.line + 1 if groups else here)
    # A variable is set before it is used, though its line may stand below.
    used = any("$" in word.value for word in words)
    own = [one for name in _VARIABLES for one in _variables(parts.get(name))]
    given = {name for _, name, _ in own}
    for line, assigned, value in (*((first, *one) for one in filled if words and one[0] not in given), *own):
        there = lines.setdefault(min(line, first) if used else line, [])
        export = f"export {assigned}={shlex.quote(' '.join(value.split()))}"
        if export not in there:
            there.append(export)
    if script is not None:
        _write_script(script, lines, at)
    elif words:
        _write_command(words, lines, at)


def _script_of(words: list[yaml.ScalarNode]) -> yaml.ScalarNode | None:
    """The script that a shell is given in a word (`bash -e -c SCRIPT`); None for another command."""
    if not words or not _SHELL.fullmatch(words[0].value):
        return None
    for place, word in enumerate(words[1:], 1):
        if not word.value.startswith("-"):
            return None
        if re.fullmatch(r"-[a-z]*c", word.value):
            return next((one for one in words[place + 1 :] if one.value != "--"), None)
    return None


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


def _write_script(script: yaml.ScalarNode, lines: Lines, at: int | None) -> None:
    """The script of a shell: line by line where it stands so, else on one line."""
    if script.style == "|" and at is None:
        for number, line in enumerate(script.value.splitlines(), script.start_mark.line + 2):
            lines.setdefault(number, []).append(line)
        return
    told = [line.strip() for line in script.value.replace("\\\n", " ").splitlines()]
    joined = "; ".join(line for line in told if line and not line.startswith("#"))
    whole = re.sub(r"(?:(?<=\bthen)|(?<=\bdo)|(?<=\belse)|(?<=[{&|]));(?=\s)", "", joined)
    lines.setdefault(at or script.start_mark.line + 1, []).append(whole)


def _write_command(words: list[yaml.ScalarNode], lines: Lines, at: int | None) -> None:
    """One command: each word on its line, but those that stand above something else, which come to the first of the last part."""
    places = [at or word.start_mark.line + 1 for word in words]
    if places != sorted(places):  # arguments above their command
        places = [places[-1]] * len(places)
    begin = places[-1]
    for line in reversed(places):
        if any(between in lines for between in range(line, begin)):
            break
        begin = line
    by_line: dict[int, list[str]] = {}
    for word, line in zip(words, places, strict=True):
        text = " ".join(word.value.split()) if len(words) == 1 else _quoted(word.value)
        by_line.setdefault(max(begin, line), []).append(text)
    last = max(by_line)
    for line in range(begin, last + 1):
        lines.setdefault(line, []).append(" ".join(by_line.get(line, ())) + (" \\" if line < last else ""))


def _quoted(word: str) -> str:
    """A word as a shell reads it, where variables that Kubernetes puts in (`$(NAME)`) are put in by it."""
    text = re.sub(r"\$\(([A-Za-z_]\w*)\)", r"${\1}", " ".join(word.split()))
    return '"' + text.replace('"', '\\"') + '"' if "$" in text else shlex.quote(text)
