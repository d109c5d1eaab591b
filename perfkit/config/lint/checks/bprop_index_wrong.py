"""A list of kept values that leaves out one that bprop reads."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.bprop import minimal_inputs, used_inputs
from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.code import step_methods
from perfkit.config.lint.subjects import Code
from perfkit.core.texts import say


def _check(code: Code) -> Iterator[Found]:
    for owner, method in step_methods(code, "bprop"):
        needed, stated = minimal_inputs(owner, method), used_inputs(owner)
        if needed is None or stated is None:
            continue
        missing = sorted(needed.needed - stated.indices)
        beyond = sorted(index for index in stated.indices if index >= needed.total)
        if missing or beyond:
            form = "{indices}: {missing} are read but not kept" if missing else "{indices}: {beyond} do not exist"
            indices = f"used_bprop_inputs = {sorted(stated.indices)}"
            message = say(form, indices=indices, missing=str(missing), beyond=str(beyond))
            yield Found(message=message, line=stated.line, fix=f"self.used_bprop_inputs = {sorted(needed.needed)}")


CHECK = Check(
    name="bprop-index-wrong",
    title="The list used_bprop_inputs leaves out what bprop reads",
    kind="code",
    severity="error",
    check=_check,
    why="The backward pass reads a value that was freed.",
    fix="list inputs, then output, then dout by their positions",
    bad="""class Scatter(nn.Cell):
    def __init__(self):
        self.used_bprop_inputs = [0]

    def construct(self, x):
        return self.op(x)

    def bprop(self, x, out, dout):
        return self.gather(dout)
""",
    repair=("        self.used_bprop_inputs = [0]", "        self.used_bprop_inputs = [2]"),
    example="net.py",
)
