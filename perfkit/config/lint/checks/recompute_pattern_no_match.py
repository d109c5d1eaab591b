"""A recompute pattern that matches no operator."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found, Severity
from perfkit.config.lint.recompute import has_known_names, patterns_of
from perfkit.config.lint.subjects import Config
from perfkit.core.patterns import check_patterns
from perfkit.core.texts import say


def _check(config: Config) -> Iterator[Found]:
    if not has_known_names(config):
        return
    found = list(patterns_of(config))
    judged = check_patterns([pattern for _, pattern in found])
    if not config.whole and 2 * sum(bool(one.matched) for one in judged) < len(judged):
        return  # a piece does not name its model, and most of these are no names of this one's layers
    for (key, _), checked in zip(found, judged, strict=True):
        if not checked.matched:
            hint = say("; did you mean {repaired}?", repaired=checked.repaired) if checked.repaired else ""
            severity: Severity = "error" if checked.candidates else "warning"
            yield Found(
                message=say("{pattern} matches no operator of a layer{hint}", pattern=checked.pattern, hint=hint),
                key=key,
                severity=severity,
            )


CHECK = Check(
    name="recompute-pattern-no-match",
    title="A recompute pattern matches nothing",
    kind="config",
    severity="error",
    check=_check,
    why="The pattern is skipped in silence: nothing is recomputed, and memory does not fall.",
    fix="write the name as the model has it; a dot between names is \\. ",
    bad=r"""use_parallel: True
parallel_config:
  data_parallel: 8
model:
  model_config:
    type: LlamaConfig
    num_layers: 32
    hidden_size: 4096
    num_heads: 32
    vocab_size: 32000
    seq_length: 4096
recompute_config:
  select_recompute: ['feed_forward\.W3\.reshape']
""",
    repair=("  select_recompute: ['feed_forward\\.W3\\.reshape']", "  select_recompute: ['feed_forward\\.w3\\.reshape']"),
    example="pretrain.yaml",
)
