"""Attention heads that tensor parallel and Ulysses cannot cut evenly."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import MODEL, Check, Found
from perfkit.config.lint.facts import facts_of
from perfkit.config.lint.subjects import Config
from perfkit.core.texts import say


def _check(config: Config) -> Iterator[Found]:
    facts = facts_of(config)
    if facts is None:
        return
    algorithm = str(config.get("parallel_config.context_parallel_algo"))
    ulysses = facts.context if algorithm.startswith("ulysses") else facts.ulysses if algorithm in ("hybird_cp", "hybrid_cp") else 1
    for name, title in (("heads", "attention heads"), ("kv_heads", "key-value heads")):
        count = getattr(facts, name)
        ways = facts.tensor * ulysses
        if not count or count % ways == 0 or (name == "kv_heads" and count == facts.heads):
            continue
        if name == "kv_heads" and count < facts.tensor and facts.tensor % count == 0 and config.dialect != "mindformers":
            continue  # Megatron copies key-value heads where there are fewer than devices
        yield Found(
            message=say("{count} {title} cannot be cut {ways} ways", count=str(count), title=title, ways=str(ways)),
            key=facts.key(name),
        )


CHECK = Check(
    name="heads-not-divisible",
    title="Heads are not divisible",
    kind="config",
    severity="error",
    check=_check,
    why="The launch fails when the attention is built.",
    fix="choose a tensor parallel size, times the Ulysses degree, that divides the key-value heads",
    bad="""use_parallel: True
parallel_config:
  model_parallel: 3
"""
    + MODEL,
    repair=("  model_parallel: 3", "  model_parallel: 4"),
    example="pretrain.yaml",
)
