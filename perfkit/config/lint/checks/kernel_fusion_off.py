"""A graph that is compiled without fusing kernels."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import MODEL, Check, Found
from perfkit.config.lint.facts import is_inference, is_on
from perfkit.config.lint.subjects import Config


def _check(config: Config) -> Iterator[Found]:
    if config.dialect != "mindformers" or config.get("context") is None or config.get("context.mode", 0) not in (0, "GRAPH_MODE"):
        return
    level = config.get("context.jit_config.jit_level") or config.get("context.jit_level", None)
    if level not in ("O0", "O1") and not is_on(config, "context.enable_graph_kernel") and not is_inference(config):
        yield Found(message="neither jit_level O0 or O1 nor graph kernels", key="context.enable_graph_kernel")


CHECK = Check(
    name="kernel-fusion-off",
    title="Kernel fusion is off",
    kind="config",
    severity="information",
    check=_check,
    why="In the guides' 13B case fusion, together with what its memory allowed, brought 6.5 %.",
    fix="try context.jit_config.jit_level: O1, and check the accuracy",
    bad="""use_parallel: True
runner_config:
  epochs: 1
context:
  mode: 0
"""
    + MODEL,
    repair=(
        "  mode: 0",
        """  mode: 0
  jit_config:
    jit_level: O1""",
    ),
    example="pretrain.yaml",
)
