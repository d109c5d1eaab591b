"""A memory pool that leaves no room for the rest of the device."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.subjects import Config
from perfkit.core.units import GIB, format_bytes, parse_bytes

DEVICE_BYTES = 64 * GIB
USABLE_BYTES = round(60.97 * GIB)
ADVISED_BYTES = 58 * GIB


def _check(config: Config) -> Iterator[Found]:
    text = config.get("context.max_device_memory")
    if not isinstance(text, str):
        return
    try:
        found = parse_bytes(text)
    except ValueError:
        return
    hardware = config.plan.hardware if config.plan is not None else None
    device, usable, advised = DEVICE_BYTES, USABLE_BYTES, ADVISED_BYTES
    if hardware is not None and hardware.memory_bytes != DEVICE_BYTES:
        device, usable, advised = hardware.memory_bytes, round(hardware.memory_bytes * 0.953), round(hardware.memory_bytes * 0.906)
    key = "context.max_device_memory"
    if found >= usable:
        message = f"{text} leave no room on a device of {format_bytes(device)}, of which {format_bytes(usable)} can be used"
        yield Found(message=message, key=key)
    elif found > advised:
        message = f"{text} are more than the advised {format_bytes(advised)} on a device of {format_bytes(device)}"
        yield Found(message=message, key=key, severity="warning")


CHECK = Check(
    name="max-device-memory",
    title="The memory pool is too large",
    kind="config",
    severity="error",
    check=_check,
    why="Communication buffers and the runtime lie outside of the pool; without room for them the job dies late.",
    fix="leave room: 58GB are advised on a device of 64 GB",
    bad="""use_parallel: True
parallel_config:
  data_parallel: 8
context:
  max_device_memory: "61GB"
""",
    repair=('  max_device_memory: "61GB"', '  max_device_memory: "58GB"'),
    example="pretrain.yaml",
    source="guides: a 64 GB device has 62,432 MiB, of which 58 GB are advised for the pool",
)
