"""An optimizer whose construct is not compiled."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.code import dotted, step_methods
from perfkit.config.lint.subjects import Code
from perfkit.core.texts import say


def _check(code: Code) -> Iterator[Found]:
    for owner, method in step_methods(code, "construct"):
        bases = " ".join(dotted(base) for base in owner.bases)
        is_optimizer = "Optimizer" in bases or owner.name.endswith(("Optimizer", "AdamW", "Adam", "SGD", "Lamb", "Muon"))
        decorated = [dotted(item.func if isinstance(item, ast.Call) else item) for item in method.decorator_list]
        if is_optimizer and not any(name.rpartition(".")[2] in ("jit", "ms_function") for name in decorated):
            yield Found(message=say("{name}.construct is not compiled", name=owner.name), line=method.lineno)


CHECK = Check(
    name="optimizer-no-jit",
    title="The optimizer runs operator by operator",
    kind="code",
    severity="information",
    check=_check,
    why="Hundreds of small operators are launched by the host in every step.",
    fix="put @jit on construct",
    bad="""class MyAdamW(nn.Optimizer):
    def construct(self, gradients):
        return self.update(gradients)
""",
    repair=(
        "class MyAdamW(nn.Optimizer):",
        """class MyAdamW(nn.Optimizer):
    @jit""",
    ),
    example="optimizer.py",
)
