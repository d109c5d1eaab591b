"""Replicas that each keep the whole optimizer state."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.facts import facts_of, is_inference
from perfkit.config.lint.subjects import Config
from perfkit.core.params import trained_params
from perfkit.core.texts import say
from perfkit.core.units import format_bytes


def _check(config: Config) -> Iterator[Found]:
    facts = facts_of(config)
    if (
        facts is None
        or facts.data == 1
        or facts.optimizer_parallel
        or is_inference(config)
        or config.get("model.model_config.pet_config")
    ):
        return
    saved = ""
    if config.plan is not None:
        parameters = int(trained_params(config.plan.model).total) // (facts.tensor * facts.pipeline)
        state = config.plan.optimizer.state_bytes_per_parameter * parameters
        saved = say(
            "; sharding it over {data} replicas saves {amount} a device",
            data=str(facts.data),
            amount=format_bytes(state - state // facts.data),
        )
    key = "parallel.enable_parallel_optimizer" if config.dialect == "mindformers" else facts.key("tensor")
    yield Found(message=say("{data} replicas keep the same optimizer state{saved}", data=str(facts.data), saved=saved), key=key)


CHECK = Check(
    name="optimizer-parallel-off",
    title="Optimizer parallel is off",
    kind="config",
    severity="warning",
    check=_check,
    why="Every replica keeps the same optimizer state.",
    fix="switch on parallel.enable_parallel_optimizer, or --use-distributed-optimizer",
    bad="""use_parallel: True
parallel_config:
  data_parallel: 8
parallel:
  enable_parallel_optimizer: False
""",
    repair=("  enable_parallel_optimizer: False", "  enable_parallel_optimizer: True"),
    example="pretrain.yaml",
)
