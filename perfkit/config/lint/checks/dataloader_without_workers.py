"""A data loader that reads on the main thread."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.code import called_name, constant, keyword
from perfkit.config.lint.subjects import Code
from perfkit.core.texts import say


def _check(code: Code) -> Iterator[Found]:
    for node in code.nodes(ast.Call):
        if called_name(node) == "DataLoader":
            workers = keyword(node, "num_workers")
            if workers is None or constant(workers) == 0:
                yield Found(message="DataLoader without num_workers reads on the main thread", line=node.lineno)
        elif called_name(node) in ("GeneratorDataset", "MindDataset") and constant(keyword(node, "num_parallel_workers")) == 1:
            yield Found(message=say("{call} with one worker", call=called_name(node)), line=node.lineno)


CHECK = Check(
    name="dataloader-without-workers",
    title="The data loader has no workers",
    kind="code",
    severity="warning",
    check=_check,
    why="Batches are read and prepared between two steps, while the device waits.",
    fix="give the loader workers (num_workers, num_parallel_workers)",
    bad="""loader = DataLoader(data, batch_size=8)
for batch in loader:
    train_step(batch)
""",
    repair=("loader = DataLoader(data, batch_size=8)", "loader = DataLoader(data, batch_size=8, num_workers=8)"),
    example="train.py",
)
