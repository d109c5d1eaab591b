"""Elsewhere: files that are no recording but that people choose for one, each with what it is and what reads it, in one line.

A configuration, a compiler graph, the file of another tool: known by the first bytes, or by the name where those say nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from perfkit.record.listing import File


class _Kind(NamedTuple):
    """What a file is, what to do with it, and how it is known: by a pattern in its first 4 KiB, or in its name."""

    what: str
    where: str
    start: re.Pattern[bytes] | None = None
    name: re.Pattern[str] | None = None


_CONFIGURATION = "a configuration is read with perfkit.read_config(path), `perfkit lint` or `perfkit estimate`"
_NOTHING = "it holds no event of a run; choose the folder of the recording"


def _start(pattern: bytes) -> re.Pattern[bytes]:
    return re.compile(pattern, re.MULTILINE)


def _name(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


_KINDS: Sequence[_Kind] = (
    _Kind(
        "a MindFormers configuration",
        _CONFIGURATION,
        _start(rb"^(?:parallel_config|runner_config|runner_wrapper|train_parallel)\s*:"),
    ),
    _Kind(
        "a MindFormers configuration",
        _CONFIGURATION,
        _start(rb"^(?:run_mode|use_parallel|train_precision_sync|only_save_strategy)\s*:"),
    ),
    _Kind(
        "the arguments of a Megatron run",
        _CONFIGURATION,
        _start(rb"--(?:tensor-model-parallel-size|pipeline-model-parallel-size|num-layers)\b"),
    ),
    _Kind("a plan of perfkit", _CONFIGURATION, _start(rb"^\[(?:plan|model|parallel|devices|hardware)[.\]]"), _name(r"\.toml$")),
    _Kind("a Hugging Face model configuration", _CONFIGURATION, _start(rb'\A\s*\{(?s:.)*"(?:architectures|model_type)"\s*:')),
    _Kind("a torchtitan configuration", _CONFIGURATION, _start(rb"^\[(?:training|parallelism|activation_checkpoint)\]")),
    _Kind(
        "a dump of a compiler graph",
        "it is read with perfkit.read_graph(path) or `perfkit graph`",
        _start(rb"^(?:# ===|#IR entry|subgraph (?:attr|@)|%\d+\([^)]*\) = )"),
    ),
    _Kind(
        "a PyTorch execution trace (operators without times)",
        "record a profile with torch.profiler beside it",
        _start(rb'"schema"\s*:\s*"\d+\.\d+\.\d+[^"]*",(?s:.){0,200}"nodes"\s*:'),
    ),
    _Kind(
        "a rocprofv3 result in JSON",
        "export it with `rocprofv3 --output-format pftrace` for Perfetto; perfkit reads what torch.profiler writes on ROCm",
        _start(rb'\A\s*\{\s*"rocprofiler-sdk-tool"\s*:'),
    ),
    _Kind("a TensorBoard profile of XLA (XPlane)", "open it in TensorBoard or xprof", name=_name(r"\.xplane\.pb$")),
    _Kind(
        "a Nsight Systems report",
        "export it with `nsys export --type sqlite` and open the .sqlite file",
        name=_name(r"\.(?:nsys-rep|qdrep|qdstrm)$"),
    ),
    _Kind("a Nsight Compute report", "open it in ncu-ui; it has single kernels, no run", name=_name(r"\.ncu-rep$")),
    _Kind(
        "a Perfetto trace in its binary form",
        "open it at ui.perfetto.dev, or convert it with `traceconv json`",
        name=_name(r"\.(?:pftrace|perfetto-trace)$"),
    ),
    _Kind("a MindInsight Marey graph", _NOTHING, _start(rb'\A\s*\{\s*"(?:maps|scope_map)"\s*:')),
    _Kind(
        "one table of a MindSpore Insight profile, without times of steps",
        _NOTHING,
        name=_name(
            r"^(?:flops_(?:summary|scope)|(?:ascend_|gpu_)?timeline_summary|dynamic_shape_info|framework_raw|minddata_cpu_utilization"
            r"|pipeline_profiling|step_trace_point_info|aicpu_intermediate)(?:_\d+)?\.(?:json|csv)$"
        ),
    ),
    _Kind(
        "one table of an Ascend profile, without moments of its rows",
        _NOTHING,
        name=_name(r"^(?:operator_details|static_op_mem|op_statistic|api_statistic|data_preprocess|l2_cache)(?:_\d+)*\.csv$"),
    ),
    _Kind(
        "raw data of msprof that is not exported",
        "run `msprof --export=on --output=<folder>` and open its result",
        name=_name(r"^(?:.*\.slice_\d+(?:\.done)?|sqlite)$"),
    ),
    _Kind(
        "the metadata of an Ascend profile without its output", _NOTHING, name=_name(r"^profiler_(?:metadata|info(?:_\d+)?)\.json$")
    ),
    _Kind("a notebook", "open it in JupyterLab or with `perfkit serve`", name=_name(r"\.ipynb$")),
    _Kind("weights or a checkpoint", _NOTHING, name=_name(r"\.(?:pt|pth|ckpt|safetensors|bin|onnx|mindir)$")),
    _Kind("program text", _NOTHING, name=_name(r"\.(?:py|sh|cpp|cc|cu|js|ts)$")),
    _Kind("a document", _NOTHING, name=_name(r"\.(?:md|rst|pdf|docx?|html?|pptx?|png|jpe?g|svg)$")),
)


def what_they_are(files: Sequence[File]) -> list[str]:
    """One line for each kind of known file among `files`; none if none is known. Documents beside other files are passed over."""
    found: dict[_Kind, list[File]] = {}
    for file in files:
        kind = next((kind for kind in _KINDS if _is(file, kind)), None)
        if kind is not None:
            found.setdefault(kind, []).append(file)
    if len(found) > 1:
        found = {kind: of_kind for kind, of_kind in found.items() if kind is not _KINDS[-1]}
    return [f"{_files(of_kind)} {kind.what}: {kind.where}" for kind, of_kind in found.items()]


def _is(file: File, kind: _Kind) -> bool:
    by_name = kind.name is not None and kind.name.search(file.name) is not None
    if kind.start is None:
        return by_name
    return (kind.name is None or by_name) and kind.start.search(file.head) is not None


def _files(files: Sequence[File]) -> str:
    return f"{files[0].label} is" if len(files) == 1 else f"{files[0].label} and {len(files) - 1} more are"
