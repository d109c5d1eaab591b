"""Mappings and lists of a manifest as they are composed, so that each value keeps its line."""

from __future__ import annotations

import yaml


def parts(node: yaml.Node | None, depth: int = 8) -> dict[str, yaml.Node]:
    """What stands under the names of a mapping, with what it takes over by `<<`; nothing of anything else."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    own = {key.value: value for key, value in pairs if isinstance(key, yaml.ScalarNode)}
    if (base := own.pop("<<", None)) is None or not depth:
        return own
    bases = [parts(one, depth - 1) for one in (*items(base), base)]
    return {name: value for some in (*reversed(bases), own) for name, value in some.items()}


def items(node: yaml.Node | None) -> list[yaml.Node]:
    """The elements of a list; none of anything else."""
    return node.value if isinstance(node, yaml.SequenceNode) else []


def plain(node: yaml.Node | None) -> str:
    """A plain value as it is written; "" of anything else."""
    return node.value if isinstance(node, yaml.ScalarNode) else ""
