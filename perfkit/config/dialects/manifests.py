"""Manifests of containers, of Kubernetes (pods, jobs, `PyTorchJob`) and of Compose, as the shell script that their containers run.

Of a container `command` and `args` (Kubernetes), or `entrypoint` and `command` (Compose), are one command line, and `env` or
`environment` its variables, also those of a ConfigMap that stands in the same text, which may bring scripts and files of settings
along. Of what the cluster fills in, the pods of a `PyTorchJob` are known from its replicas, as its operator has them (`setPodEnv`
in pkg/controller.v1/pytorch/envvar.go of kubeflow/training-operator); the rest is named.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import yaml

from perfkit.config.dialects._manifest_nodes import items, parts, plain
from perfkit.config.dialects._manifest_sources import Sources
from perfkit.core.texts import Said, say

_MANIFEST = re.compile(r"^(?:apiVersion[ \t]*:[ \t]*\S|services[ \t]*:[ \t]*(?:#.*)?\r?$)", re.MULTILINE)
_CONTAINERS = ("containers", "initContainers")
_VARIABLES = ("env", "environment")
_COMMANDS = ("entrypoint", "command", "args")
"""In the order in which the words of the command line stand."""
MOST_TOLD, MOST_DEEP, MOST_DEVICES = 20, 2, 64
VISIBLE = {
    "nvidia.com/gpu": "CUDA_VISIBLE_DEVICES",
    "amd.com/gpu": "CUDA_VISIBLE_DEVICES",
    "huawei.com/Ascend": "ASCEND_RT_VISIBLE_DEVICES",
}
NAME = re.compile(r"[A-Za-z_]\w*")
_SHELL = re.compile(r"(?:.*/)?(?:ba|z)?sh")

Lines = dict[int, list[str]]


@dataclass(frozen=True, slots=True)
class File:
    """A file that a manifest brings along: its text, and the line on which that begins."""

    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a text comes to: `script` is what its containers run, `placed` the same with everything on the line on which it stands.

    In the first all variables are set before the commands. `files` are those that the commands name and that are no scripts, by
    their paths, `unknown` what the cluster fills in. A text that is no manifest is its own script.
    """

    script: str
    placed: str
    files: Mapping[str, File] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()

    def told(self) -> Said:
        """What is not known."""
        most = ", ".join(self.unknown[:MOST_TOLD]) + (", ..." if len(self.unknown) > MOST_TOLD else "")
        return say("not known, as the cluster fills it in: {names}", names=most)


@lru_cache(maxsize=4)
def manifest_of(text: str) -> Manifest:
    """A text as what its containers run."""
    if not _MANIFEST.search(text):
        return Manifest(text, text)
    try:
        documents = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
        sources = Sources.of(documents)
        files: dict[str, File] = {}
        script, placed = (_script(documents, _Writer({}, sources, files, ahead)) for ahead in (True, False))
    except (yaml.YAMLError, RecursionError):
        return Manifest(text, text)
    return Manifest(script, placed, files, tuple(sources.unknown)) if script else Manifest(text, text)


def _script(documents: Iterable[yaml.Node | None], writer: _Writer) -> str:
    for document in documents:
        writer.filled = _filled_in(document)
        for container, volumes in _containers(document):
            writer.write(container, volumes)
    count = max(writer.lines, default=0)
    return "".join("; ".join(writer.lines.get(number, ())) + "\n" for number in range(1, count + 1))


def _containers(root: yaml.Node | None) -> Iterator[tuple[yaml.MappingNode, yaml.Node | None]]:
    """The containers of a document with their volumes, in their order and each once; an alias is looked at where it is defined."""
    waiting, seen, given = [root], set[int](), set[int]()
    while waiting:
        node = waiting.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        own = parts(node)
        named = [one for name in _CONTAINERS for one in items(own.get(name))]
        for one in (*named, *parts(own.get("services")).values()):
            if isinstance(one, yaml.MappingNode) and id(one) not in given:
                given.add(id(one))
                yield one, own.get("volumes")
        waiting += reversed([*own.values(), *items(node)])


def _filled_in(root: yaml.Node | None) -> list[tuple[str, str]]:
    """The variables by which the operator of a `PyTorchJob` tells every container how many pods and processes the job has."""
    spec = parts(parts(root).get("spec"))
    pods = parts(spec.get("pytorchReplicaSpecs"))
    counts = [_count(parts(one).get("replicas")) for one in pods.values()]
    if not any(counts):
        return []
    nodes, each = sum(count or 1 for count in counts), _count(spec.get("nprocPerNode"))
    found = {"PET_NNODES": nodes} | ({"PET_NPROC_PER_NODE": each} if each else {})
    found |= {"WORLD_SIZE": nodes * (each or 1)} if "Master" in pods else {}
    return [(name, str(value)) for name, value in found.items()]


def _count(node: yaml.Node | None) -> int:
    return int(node.value) if isinstance(node, yaml.ScalarNode) and re.fullmatch(r"\d{1,6}", node.value) else 0


@dataclass(slots=True)
class _Writer:
    """Lines of a script that grow by one container after the other; those of one document are `filled` in by its operator.

    With `ahead` variables come before the command also where nothing of it asks for them.
    """

    lines: Lines
    sources: Sources
    files: dict[str, File]
    ahead: bool
    filled: list[tuple[str, str]] = field(default_factory=list)
    written: set[int] = field(default_factory=set)

    def write(self, container: yaml.MappingNode, volumes: yaml.Node | None) -> None:
        """Write what a container runs, with its variables."""
        own, here = parts(container), container.start_mark.line + 1
        groups = [group for name in _COMMANDS if (group := _words(own.get(name)))]
        words = [word for group in groups for word in group]
        script = _script_of(words)
        brought = self._brought(container, volumes, "\n".join(word.value for word in words))
        # What an alias brings stands where its anchor does, and there it has been written already.
        at = here if any(id(word) in self.written for word in words) else None
        self.written.update(map(id, words))
        first = at or (groups[-1][0].start_mark.line + 1 if groups else here)
        first = min(first, *(one.start_mark.line + 2 for one in brought)) if brought else first
        # A variable is set before it is used, though its line may stand below.
        used = self.ahead or any("$" in word.value for word in (*words, *brought))
        given = [one for name in _VARIABLES for one in _variables(own.get(name), self.sources)]
        stated = {name for _, name, _ in given}
        taken = ((node.start_mark.line + 1, name, node.value) for node, name in self.sources.all_of(own.get("envFrom")))
        given = [one for one in (*(one for one in taken if one[1] not in stated), *given) if NAME.fullmatch(one[1])]
        filled = (*self.filled, *_devices(own)) if self.ahead else self.filled
        for line, name, value in (*((first, *one) for one in filled if words and one[0] not in stated), *given):
            there = self.lines.setdefault(min(line, first) if used else line, [])
            export = f"export {name}={shlex.quote(' '.join(value.split()))}"
            if export not in there:
                there.append(export)
        for one in brought:
            if id(one) not in self.written:
                self.written.add(id(one))
                _write_script(one, self.lines, None)
        if script is not None:
            _write_script(script, self.lines, at)
        elif words:
            _write_command(words, self.lines, at)

    def _brought(self, container: yaml.Node, volumes: yaml.Node | None, commands: str) -> list[yaml.ScalarNode]:
        """Scripts of ConfigMaps that the commands start; what else they name, and what that names, is kept as a file."""
        found = self.sources.files(container, volumes, commands)
        for _ in range(MOST_DEEP):
            named = "\n".join((commands, *(one.value for one in found.values())))
            found = self.sources.files(container, volumes, named)
        for path, one in found.items():
            if not _is_script(path, one):
                self.files[path] = File(one.value, one.start_mark.line + (2 if one.style == "|" else 1))
        return [one for path, one in found.items() if _is_script(path, one)]


def _devices(container: Mapping[str, yaml.Node]) -> Iterator[tuple[str, str]]:
    """The variable that says which devices a container sees: as many as it may have, by the resources of their makers."""
    for resource, count in parts(parts(container.get("resources")).get("limits")).items():
        variable = next((variable for maker, variable in VISIBLE.items() if resource.startswith(maker)), "")
        if variable and 0 < (number := _count(count)) <= MOST_DEVICES:
            yield variable, ",".join(map(str, range(number)))


def _is_script(path: str, node: yaml.ScalarNode) -> bool:
    return path.endswith((".sh", ".bash")) or node.value.startswith("#!")


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


def _variables(node: yaml.Node | None, sources: Sources) -> Iterator[tuple[int, str, str]]:
    """Line, name and value: of a list of names and values, of a list of `NAME=value`, or of a mapping."""
    for name, value in parts(node).items():
        if isinstance(value, yaml.ScalarNode):
            yield value.start_mark.line + 1, name, value.value
    for one in items(node):
        own = parts(one)
        named = plain(own.get("name"))
        if isinstance(one, yaml.ScalarNode) and "=" in one.value:
            name, _, stated = one.value.partition("=")
            yield one.start_mark.line + 1, name, stated
        elif taken := own.get("value") if "value" in own else sources.value(named, own.get("valueFrom")):
            yield taken.start_mark.line + 1, named, plain(taken)


def _words(node: yaml.Node | None) -> list[yaml.ScalarNode]:
    given = [node] if isinstance(node, yaml.ScalarNode) else items(node)
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
