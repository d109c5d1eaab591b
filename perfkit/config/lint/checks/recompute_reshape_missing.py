"""Silu and Mul recomputed without the reshapes that keep their results alive."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import MODEL, Check, Found
from perfkit.config.lint.recompute import patterns_of
from perfkit.config.lint.subjects import Config
from perfkit.core.texts import say

WANTED = (r"feed_forward\.w1\.reshape", r"feed_forward\.w2\.reshape")


def _check(config: Config) -> Iterator[Found]:
    found = dict(reversed([(pattern, key) for key, pattern in patterns_of(config)]))
    if r"feed_forward\.mul" not in found or config.get("micro_batch_interleave_num", 1) != 1:
        return
    missing = [pattern for pattern in WANTED if pattern not in found]
    if missing:
        message = say("feed_forward.mul is recomputed without {names}", names=" and ".join(missing))
        yield Found(message=message, key=found[r"feed_forward\.mul"], fix=say("add {names}", names=", ".join(missing)))


CHECK = Check(
    name="recompute-reshape-missing",
    title="Reshapes beside Silu and Mul are not recomputed",
    kind="config",
    severity="information",
    check=_check,
    why="Where the linear's input has three dimensions a Reshape lies between Linear and Mul; a result that it keeps is not freed.",
    fix="add the reshape patterns of w1 and w2",
    bad=r"""use_parallel: True
parallel_config:
  data_parallel: 8
recompute_config:
  select_recompute: ['feed_forward\.mul', 'feed_forward\.w1\.activation']
"""
    + MODEL,
    repair=(r"w1\.activation'", r"w1\.activation', 'feed_forward\.w1\.reshape', 'feed_forward\.w2\.reshape'"),
    example="pretrain.yaml",
)
