"""Writers: the profiling lines of each framework, and which of its switches records which part.

Sources: MindFormers `tools/register/template.py` and, of its trainer for PyNative, `pynative/config/config.py` and
`pynative/tools/profiler.py` (`end_step` is still recorded), MindSpore `mindspore.profiler.profile`, PyTorch
`torch.profiler`, Ascend PyTorch profiler, Megatron-LM `training.py` (`--profile-step-end` is not recorded any more), MindSpeed
`docs/user-guide/profile.md`, MindSpeed-Core-MS `TrainingConfig` (`profile_step_end` is still recorded).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from perfkit.config.collect._request import Request, Snippet

OUTPUT_NOTE = "Open the folder that holds all ranks (any parent will do), for example output_dir/profile or ./profile."
O2_NOTE = "With jit_level O2 memory is recorded from step 1 only: set init_start_profile: True, which voids profile_start_step."
OLD_MINDSPORE_NOTE = "Before MindSpore 2.5 use mindspore.Profiler(start_profile=False) with start() and stop()."
PICKLE_NOTE = (
    "--record-memory-history writes a pickle, which perfkit does not open because a pickle can run code: pass profile_memory=True "
    "to torch.profiler.profile in megatron/training/training.py."
)
COLLECTIONS = ", gc_detect_threshold=1.0"
"""Writes garbage collections of at least 1 ms (checked against torch_npu 2.14)."""
EXTRAS: Mapping[str, Mapping[str, tuple[str, tuple[int, ...]]]] = {
    "mindspore": {
        "marks": ("mstx=True", (2, 5)),
        "network": ("sys_io=True, sys_interconnection=True", (2, 7)),
        "host load": ("host_sys=[mindspore.profiler.HostSystem.CPU, mindspore.profiler.HostSystem.MEM]", (2, 7)),
    },
    "torch-npu": {
        "marks": ("mstx=True", (7, 0)),
        "network": ("sys_io=True, sys_interconnection=True", (7, 2)),
        "host load": ("host_sys=[torch_npu.profiler.HostSystem.CPU, torch_npu.profiler.HostSystem.MEM]", (7, 2)),
    },
}
"""Arguments of `_ExperimentalConfig` that record more than perfkit reads, with the release that has them first.

MindSpore's, and of torch_npu that of Ascend Extension for PyTorch (before 7.0 marks were called msprof_tx, which stays valid).
"""
OLDER = {"torch-npu": {"marks": "msprof_tx=True"}}
EXTRAS_NOTE = "Marks, network and host load are drawn by MindStudio Insight; perfkit does not read them yet."
RANKS_NOTE = "Record all ranks of at least one group: waiting and link speed only show when both ends are there."


def _yaml(values: Mapping[str, object]) -> str:
    return "".join(f"{key}: {_scalar(value)}\n" for key, value in values.items())


def _scalar(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def _mindformers(request: Request) -> Snippet:
    values: dict[str, object] = {
        "profile": True,
        "profile_start_step": request.start_step,
        "profile_stop_step": request.stop_step,
        "init_start_profile": False,
        "profile_communication": request.wants("collectives", "links"),
        "profile_memory": request.wants("memory curve"),
        "profile_level": request.level,
    }
    if request.wants("host calls"):
        values["with_stack"] = True
    text = _yaml(values)
    if request.num_layers is not None:
        text += f"model:\n  model_config:\n    num_layers: {request.num_layers}\n"
    notes = [
        "Change these keys where the file has them already; a YAML file must not hold a key twice.",
        "runner_config.sink_size: 1 makes one profiled step one training step.",
        OUTPUT_NOTE,
    ]
    if request.wants("collectives", "links"):
        notes.append(RANKS_NOTE)
    if request.wants("memory curve"):
        notes.append(O2_NOTE)
    if request.wants("layout"):
        notes.append("Keep the YAML file itself: it holds the parallel layout.")
    return Snippet(text, "yaml", "the MindFormers YAML", tuple(notes))


def _pynative(request: Request) -> Snippet:
    values: dict[str, object] = {
        "enable_profiling": True,
        "start_step": request.start_step,
        "end_step": request.stop_step,
        "output_path": "./profile",
        "profiler_level": request.level,
        "profile_memory": request.wants("memory curve"),
        "profile_cpu": True,
        "with_stack": request.wants("host calls"),
    }
    text = "profiler:\n" + "".join(f"  {line}\n" for line in _yaml(values).splitlines())
    if request.num_layers is not None:
        text += f"model:\n  num_hidden_layers: {request.num_layers}\n"
    kept = ("Keep the YAML file itself: it holds the parallel layout.",) if request.wants("layout") else ()
    return Snippet(text, "yaml", "the MindFormers YAML for PyNative", (*kept, OUTPUT_NOTE, RANKS_NOTE))


def _core_ms(request: Request) -> Snippet:
    values: dict[str, object] = {
        "profile": True,
        "profile_save_path": "./profile",
        "profile_step_start": request.start_step,
        "profile_step_end": request.stop_step,
        "profile_level": f"level{request.level}",
        "profile_communication": request.wants("collectives", "links"),
        "profile_memory": request.wants("memory curve"),
        "profile_with_stack": request.wants("host calls"),
        "profile_parallel_strategy": request.wants("layout"),
    }
    text = "training_config:\n" + "".join(f"  {line}\n" for line in _yaml(values).splitlines())
    if request.num_layers is not None:
        text += f"model_config:\n  num_layers: {request.num_layers}\n"
    return Snippet(text, "yaml", "the MindSpeed-Core-MS YAML", (OUTPUT_NOTE, RANKS_NOTE))


_MINDSPORE = """\
import mindspore
from mindspore.profiler import ProfilerActivity, ProfilerLevel

profiler = mindspore.profiler.profile(
    activities=[ProfilerActivity.CPU, ProfilerActivity.NPU],
    schedule=mindspore.profiler.schedule({schedule}),
    on_trace_ready=mindspore.profiler.tensorboard_trace_handler("./profile"),
    profile_memory={memory},
    with_stack={stack},
    parallel_strategy={layout},
    experimental_config=mindspore.profiler._ExperimentalConfig(profiler_level=ProfilerLevel.Level{level}{extras}),
)
with profiler:
    for batch in dataset:  # your training loop
        train_step(batch)
        profiler.step()
"""

_PYTORCH = """\
from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler

with profile(
    activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
    schedule=schedule({schedule}),
    on_trace_ready=tensorboard_trace_handler("./profile"),  # one Chrome trace (.pt.trace.json) a rank
    record_shapes={shapes},
    profile_memory={memory},
    with_stack={stack},
) as profiler:
    for batch in loader:  # your training loop
        train_step(batch)
        profiler.step()
"""

_TORCH_NPU = """\
import torch_npu
from torch_npu.profiler import ProfilerActivity, ProfilerLevel, schedule, tensorboard_trace_handler

with torch_npu.profiler.profile(
    activities=[ProfilerActivity.CPU, ProfilerActivity.NPU],
    schedule=schedule({schedule}),
    on_trace_ready=tensorboard_trace_handler("./profile"),
    record_shapes={shapes},
    profile_memory={memory},
    with_stack={stack},
    experimental_config=torch_npu.profiler._ExperimentalConfig(
        profiler_level=ProfilerLevel.Level{level}, data_simplification=False{collections}{extras}
    ),
) as profiler:
    for batch in loader:  # your training loop
        train_step(batch)
        profiler.step()
"""


def _python(template: str, *notes: str) -> Callable[[Request], Snippet]:
    def write(request: Request) -> Snippet:
        text = template.format(
            schedule=request.schedule,
            shapes=request.wants("kernels", "operator statistics"),
            memory=request.wants("memory curve"),
            stack=request.wants("host calls"),
            layout=request.wants("layout"),
            level=request.level,
            collections=COLLECTIONS if request.wants("host calls") else "",
            extras=request.extras,
        )
        layers = () if request.num_layers is None else (f"Build the model with {request.num_layers} layers for this recording.",)
        return Snippet(text, "python", "the training script", (*layers, *notes, OUTPUT_NOTE))

    return write


def _megatron(request: Request) -> Snippet:
    lines = [
        "--profile",
        f"--profile-step-start {request.start_step}",
        f"--profile-step-end {request.stop_step + 1}",
        "--use-pytorch-profiler",
        "--profile-ranks 0",
        "--tensorboard-dir ./profile",
        *_layers(request),
    ]
    notes = [
        f"--profile-step-end is the first step that is not recorded, so {request.stop_step + 1} keeps step {request.stop_step}.",
        "--profile-ranks takes a list: 0 1 2 3. " + RANKS_NOTE,
        OUTPUT_NOTE,
    ]
    if request.wants("memory curve"):
        notes.append(PICKLE_NOTE)
    return Snippet(_arguments(lines), "shell", "the launch command", tuple(notes))


def _mindspeed(request: Request) -> Snippet:
    lines = [
        "--profile",
        f"--profile-step-start {request.start_step}",
        f"--profile-step-end {request.stop_step + 1}",
        "--profile-ranks -1",
        f"--profile-level level{request.level}",
        "--profile-with-cpu",
        *(["--profile-record-shapes"] if request.wants("kernels", "operator statistics") else []),
        *(["--profile-with-memory"] if request.wants("memory curve") else []),
        *(["--profile-with-stack"] if request.wants("host calls") else []),
        "--profile-save-path ./profile",
        *_layers(request),
    ]
    note = f"--profile-step-end is the first step that is not recorded, so {request.stop_step + 1} keeps step {request.stop_step}."
    return Snippet(_arguments(lines), "shell", "the launch command", (note, "--profile-ranks -1 records all ranks.", OUTPUT_NOTE))


def _layers(request: Request) -> list[str]:
    return [] if request.num_layers is None else [f"--num-layers {request.num_layers}"]


def _arguments(lines: list[str]) -> str:
    return " \\\n".join(lines) + "\n"


WRITERS: Mapping[str, Callable[[Request], Snippet]] = {
    "mindformers": _mindformers,
    "mindformers-pynative": _pynative,
    "mindspore": _python(_MINDSPORE, OLD_MINDSPORE_NOTE),
    "pytorch": _python(_PYTORCH, "Initialize torch.distributed first: the trace then holds the rank and the size of the job."),
    "torch-npu": _python(_TORCH_NPU, "Initialize torch.distributed first: the profile then holds the groups of every rank."),
    "megatron": _megatron,
    "mindspeed": _mindspeed,
    "mindspeed-core-ms": _core_ms,
}

_PROFILER = "the schedule of the profiler"
_ON_NPU = "activities=[ProfilerActivity.CPU, ProfilerActivity.NPU]"
_ON_GPU = "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"
_MEGATRON = "--profile --use-pytorch-profiler"

SWITCHES: Mapping[str, Mapping[str, str]] = {
    "mindformers": {
        "step times": "profile: True",
        "kernels": "profile: True",
        "collectives": "profile: True, profile_communication: True, profile_level: 1",
        "links": "profile: True, profile_communication: True, profile_level: 1",
        "timeline": "profile: True",
        "operator statistics": "profile: True, profile_level: 1",
        "host calls": "profile: True, profile_level: 1, with_stack: True",
        "memory curve": "profile: True, profile_memory: True",
        "layout": "profile: True, keep the YAML file beside the profile",
    },
    "mindformers-pynative": {
        **dict.fromkeys(("step times", "kernels", "timeline"), "profiler.enable_profiling: True"),
        **dict.fromkeys(("collectives", "links", "operator statistics"), "enable_profiling: True, profiler_level: 1"),
        "host calls": "enable_profiling: True, profiler_level: 1, with_stack: True",
        "memory curve": "enable_profiling: True, profile_memory: True",
        "layout": "enable_profiling: True, keep the YAML file beside the profile",
    },
    "mindspore": {
        "step times": _PROFILER,
        "timeline": _ON_NPU,
        "kernels": "ProfilerActivity.NPU",
        "collectives": "profiler_level=ProfilerLevel.Level1",
        "links": "profiler_level=ProfilerLevel.Level1",
        "operator statistics": "profiler_level=ProfilerLevel.Level1",
        "host calls": "with_stack=True, profiler_level=ProfilerLevel.Level1",
        "memory curve": "profile_memory=True",
        "layout": "parallel_strategy=True",
    },
    "pytorch": {
        "step times": _PROFILER,
        "timeline": _ON_GPU,
        "kernels": "ProfilerActivity.CUDA",
        "collectives": "ProfilerActivity.CUDA on all ranks",
        "links": "ProfilerActivity.CUDA on all ranks",
        "operator statistics": "record_shapes=True",
        "host calls": "ProfilerActivity.CPU, with_stack=True",
        "memory curve": "profile_memory=True",
        "layout": "torch.distributed before the profiler",
    },
    "torch-npu": {
        "step times": _PROFILER,
        "timeline": _ON_NPU,
        "kernels": "ProfilerActivity.NPU",
        "collectives": "profiler_level=ProfilerLevel.Level1",
        "links": "profiler_level=ProfilerLevel.Level1",
        "operator statistics": "profiler_level=ProfilerLevel.Level1",
        "host calls": "ProfilerActivity.CPU, with_stack=True, profiler_level=ProfilerLevel.Level1",
        "memory curve": "profile_memory=True",
        "layout": "torch.distributed before the profiler",
    },
    "megatron": {
        **dict.fromkeys(("step times", "kernels", "timeline", "operator statistics", "host calls"), _MEGATRON),
        "collectives": f"{_MEGATRON} and --profile-ranks for all ranks of a group",
        "links": f"{_MEGATRON} and --profile-ranks for all ranks of a group",
        "memory curve": "profile_memory=True where Megatron creates torch.profiler.profile, and its profiling arguments",
        "layout": f"{_MEGATRON}, and keep the launch command beside the profile,",
    },
    "mindspeed": {
        **dict.fromkeys(("step times", "kernels", "timeline"), "--profile"),
        **dict.fromkeys(("collectives", "links", "operator statistics"), "--profile --profile-level level1"),
        "host calls": "--profile --profile-level level1 --profile-with-cpu --profile-with-stack",
        "memory curve": "--profile --profile-with-cpu --profile-with-memory",
        "layout": "--profile --profile-level level1",
    },
    "mindspeed-core-ms": {
        **dict.fromkeys(("step times", "kernels", "timeline"), "training_config.profile: True"),
        **dict.fromkeys(("collectives", "links"), 'profile: True, profile_communication: True, profile_level: "level1"'),
        "operator statistics": 'profile: True, profile_level: "level1"',
        "host calls": 'profile: True, profile_level: "level1", profile_with_stack: True',
        "memory curve": "profile: True, profile_memory: True",
        "layout": "profile: True, profile_parallel_strategy: True",
    },
}

_YAML_GRAPHS = 'context:\n  save_graphs: True\n  save_graphs_path: "./graph"\n'
_CALL_GRAPHS = 'import mindspore\n\nmindspore.set_context(save_graphs=True, save_graphs_path="./graph")\n'
_SHELL_GRAPHS = "export MS_DEV_SAVE_GRAPHS=1\nexport MS_DEV_SAVE_GRAPHS_PATH=./graph\n"

GRAPH_WRITERS: Mapping[str, Snippet] = {
    "mindformers": Snippet(_YAML_GRAPHS, "yaml", "the MindFormers YAML"),
    "mindspore": Snippet(_CALL_GRAPHS, "python", "the training script, before the network is built"),
    "mindspeed-core-ms": Snippet(_SHELL_GRAPHS, "shell", "the launch script"),
}
