"""What containers take from elsewhere: variables and files out of a ConfigMap that stands in the same text.

One that does not, fields of a pod and secrets are named in the words of the manifest; a Secret is not looked into, wherever it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import yaml

from perfkit.config.dialects._manifest_nodes import items, parts, plain

T = TypeVar("T")
Data = dict[str, yaml.ScalarNode]
_ODD = re.compile(r"[^\w./*\[\]' -]")
_WORD = re.compile(r"[\w./-]+")
MOST_CHARACTERS, MOST_LOOKS = 80, 5000
"""Characters of a name that is told, and values and files of ConfigMaps that are looked at in one text: a job has tens."""


@dataclass(slots=True)
class Sources:
    """The data of ConfigMaps by their names, and what is not known, in the order in which it was asked for.

    `left` is how often it may be looked at before it is as if nothing more were there.
    """

    maps: dict[str, Data]
    unknown: dict[str, None] = field(default_factory=dict)
    left: int = MOST_LOOKS

    @classmethod
    def of(cls, documents: Iterable[yaml.Node | None]) -> Sources:
        """Those of a text; a list of objects is one document with several."""
        found: dict[str, Data] = {}
        for document in documents:
            for one in (document, *items(parts(document).get("items"))):
                own = parts(one)
                if plain(own.get("kind")) == "ConfigMap":
                    data = {key: value for key, value in parts(own.get("data")).items() if isinstance(value, yaml.ScalarNode)}
                    found.setdefault(plain(parts(own.get("metadata")).get("name")), {}).update(data)
        return cls(found)

    def value(self, name: str, node: yaml.Node | None) -> yaml.ScalarNode | None:
        """The value that a variable has by `valueFrom`; None for one that is not in the text, which is noted."""
        for kind, asked in parts(node).items():
            told = parts(asked)
            source, key = plain(told.get("name")), plain(told.get("key"))
            if kind == "configMapKeyRef" and (found := self.maps.get(source, {}).get(key)):
                return found
            place = plain(told.get("fieldPath")) or plain(told.get("resource")) or f"{source}/{key}"
            self._is_unknown(name, kind, place)
        return None

    def all_of(self, node: yaml.Node | None) -> Iterator[tuple[yaml.ScalarNode, str]]:
        """The variables that a container has by `envFrom`, with their names."""
        for one in items(node):
            own = parts(one)
            prefix = plain(own.get("prefix"))
            for kind in ("configMapRef", "secretRef"):
                if kind not in own:
                    continue
                source = plain(parts(own[kind]).get("name"))
                if kind == "configMapRef" and source in self.maps:
                    yield from ((value, prefix + key) for key, value in self._looked_at(self.maps[source].items()))
                else:
                    self._is_unknown(f"{prefix}*", kind, source)

    def files(self, container: yaml.Node, volumes: yaml.Node | None, commands: str) -> Data:
        """Files that ConfigMaps give to a container and that its `commands` name, by their paths in it."""
        named = {plain(parts(one).get("name")): one for one in self._looked_at(items(volumes))}
        words, found = set(_WORD.findall(commands)), Data()
        for mount in self._looked_at(items(parts(container).get("volumeMounts"))):
            own = parts(mount)
            place, only = plain(own.get("mountPath")).rstrip("/"), plain(own.get("subPath"))
            for source, chosen in _maps_of(named.get(plain(own.get("name")))):
                if place and source not in self.maps and place in commands:
                    self._are_unknown(source, place, words)
                for path, value in self._looked_at(_chosen(self.maps.get(source, {}), chosen)):
                    if not only or path == only:
                        found[place if only else f"{place}/{path}"] = value
        return {path: value for path, value in found.items() if not words.isdisjoint(_names_of(path))}

    def _looked_at(self, several: Iterable[T]) -> Iterator[T]:
        for one in several:
            if self.left < 1:
                return
            self.left -= 1
            yield one

    def _are_unknown(self, source: str, place: str, words: Iterable[str]) -> None:
        for word in sorted(word for word in words if word == place or word.startswith(f"{place}/")):
            self._is_unknown(word, "configMap", source)

    def _is_unknown(self, *words: str) -> None:
        name, kind, place = (_ODD.sub("?", word)[:MOST_CHARACTERS] for word in words)
        self.unknown[f"{name} ({kind} {place})"] = None


def _maps_of(volume: yaml.Node | None) -> Iterator[tuple[str, yaml.Node | None]]:
    """The ConfigMaps of a volume by name, each with what is chosen of it."""
    own = parts(volume)
    for one in (own, *map(parts, items(parts(own.get("projected")).get("sources")))):
        if source := parts(one.get("configMap")):
            yield plain(source.get("name")), source.get("items")


def _chosen(data: Data, chosen: yaml.Node | None) -> Iterator[tuple[str, yaml.ScalarNode]]:
    if chosen is None:
        yield from data.items()
    for one in map(parts, items(chosen)):
        if (value := data.get(plain(one.get("key")))) is not None:
            yield plain(one.get("path")), value


def _names_of(path: str) -> tuple[str, ...]:
    """How commands name a file: by its path or, from its folder, by its name alone, if that looks like the name of a file."""
    last = path.rpartition("/")[2]
    return (path, f"./{last}", *([last] if "." in last else ()))
