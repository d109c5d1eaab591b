"""A custom backward pass that keeps inputs it does not use."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.bprop import minimal_inputs, used_inputs
from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.code import step_methods
from perfkit.config.lint.subjects import Code
from perfkit.core.texts import say


def _check(code: Code) -> Iterator[Found]:
    for owner, method in step_methods(code, "bprop"):
        needed = minimal_inputs(owner, method)
        if needed is None or used_inputs(owner) is not None:
            continue
        names = f"self.used_bprop_inputs = {sorted(needed.needed)}"
        if len(needed.needed) < needed.total:
            message = say(
                "{name}.bprop uses {needed} of {total} values, all are kept",
                name=owner.name,
                needed=str(len(needed.needed)),
                total=str(needed.total),
            )
            yield Found(message=message, line=method.lineno, fix=say("in __init__: {names} (inputs, output, dout)", names=names))


CHECK = Check(
    name="bprop-keeps-all",
    title="A custom bprop keeps everything",
    kind="code",
    severity="warning",
    check=_check,
    why="Inputs and outputs of the forward pass stay in memory until the backward pass, used or not.",
    fix="name the needed ones in used_bprop_inputs",
    bad="""class Scatter(nn.Cell):
    def construct(self, x):
        return self.op(x)

    def bprop(self, *args):
        dout = args[-1]
        return self.gather(dout)
""",
    repair=(
        "class Scatter(nn.Cell):",
        """class Scatter(nn.Cell):
    def __init__(self):
        super().__init__()
        self.used_bprop_inputs = [2]
""",
    ),
    example="net.py",
)
