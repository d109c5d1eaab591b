"""A global batch that is not data parallel x micro batch x number of micro batches."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.facts import facts_of
from perfkit.config.lint.subjects import Config
from perfkit.core.texts import say


def _check(config: Config) -> Iterator[Found]:
    facts = facts_of(config)
    stated = config.get("dataset_config.global_batch_size") if config.dialect == "mindspeed-core" else None
    if facts is None or not facts.batch:
        return
    if isinstance(stated, int) and facts.micro_batches > 1:
        product = facts.data * facts.batch * facts.micro_batches
        if stated != product:
            text = f"{facts.data} x {facts.batch} x {facts.micro_batches} = {product}"
            yield Found(
                message=say("the global batch of {stated} is not {text}", stated=str(stated), text=text),
                key="dataset_config.global_batch_size",
            )
    world = config.get("world_size") or config.get("data_parallel_size")
    if facts.global_batch and isinstance(world, int):
        data = max(1, world // (facts.tensor * facts.pipeline * facts.context)) if config.get("world_size") else world
        if facts.global_batch % (data * facts.batch):
            text = say("{batch} x {data} replicas", batch=str(facts.batch), data=str(data))
            yield Found(
                message=say(
                    "the global batch of {global_batch} is no multiple of {text}", global_batch=str(facts.global_batch), text=text
                ),
                key=facts.key("global_batch"),
            )
    elif facts.global_batch and facts.global_batch % facts.batch:
        yield Found(
            message=say(
                "the global batch of {global_batch} is no multiple of the micro batch of {batch}",
                global_batch=str(facts.global_batch),
                batch=str(facts.batch),
            ),
            key=facts.key("global_batch"),
        )


CHECK = Check(
    name="gbs-mismatch",
    title="The global batch does not follow from its parts",
    kind="config",
    severity="error",
    check=_check,
    why="The job stops at once, or trains with another batch than was meant.",
    fix="make the global batch a multiple of micro batch x data parallel",
    bad="""torchrun pretrain_gpt.py --tensor-model-parallel-size 2 --micro-batch-size 3 --global-batch-size 1024
""",
    repair=(
        """torchrun pretrain_gpt.py --tensor-model-parallel-size 2 --micro-batch-size 3 --global-batch-size 1024""",
        """torchrun pretrain_gpt.py --tensor-model-parallel-size 2 --micro-batch-size 2 --global-batch-size 1024""",
    ),
    example="run.sh",
)
