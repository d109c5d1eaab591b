"""An environment variable that is set too late."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.code import constant, dotted
from perfkit.config.lint.subjects import Code
from perfkit.core.texts import say

READ_AT_IMPORT = ("MS_", "GLOG_", "HCCL_", "ASCEND_", "CUDA_VISIBLE", "NCCL_", "PYTORCH_", "DEVICE_ID", "RANK_")


def _check(code: Code) -> Iterator[Found]:
    imported = min((node.lineno for node in code.nodes(ast.Import, ast.ImportFrom) if _is_framework(node)), default=None)
    if imported is None:
        return
    for node in code.nodes(ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Subscript) and dotted(target.value) == "os.environ":
                name = str(constant(target.slice) or "")
                if name.startswith(READ_AT_IMPORT) and node.lineno > imported:
                    yield Found(
                        message=say("{name} is set after the import on line {imported}", name=str(name), imported=str(imported)),
                        line=node.lineno,
                    )


def _is_framework(node: ast.Import | ast.ImportFrom) -> bool:
    names = [item.name for item in node.names] if isinstance(node, ast.Import) else [node.module or ""]
    return any(name.split(".")[0] in ("mindspore", "torch", "torch_npu", "mindformers") for name in names)


CHECK = Check(
    name="env-set-after-import",
    title="A variable is set after the import that reads it",
    kind="code",
    severity="warning",
    check=_check,
    why="MindSpore and CANN read their variables when they are imported.",
    fix="set it before the import, or in the launch script",
    bad="""import os
import mindspore
os.environ['MS_ALLOC_CONF'] = 'enable_vmm:True'
""",
    repair=(
        """import mindspore
os.environ['MS_ALLOC_CONF'] = 'enable_vmm:True'""",
        """os.environ['MS_ALLOC_CONF'] = 'enable_vmm:True'
import mindspore""",
    ),
    example="train.py",
)
