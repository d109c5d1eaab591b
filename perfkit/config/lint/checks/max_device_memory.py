"""A memory pool that leaves no room for the rest of the device."""

from __future__ import annotations

from collections.abc import Iterator

from perfkit.config.dialects.memory_text import POOL_KEY, size_of
from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.subjects import Config
from perfkit.core.texts import say
from perfkit.core.units import GIB, format_bytes

DEVICE_BYTES = 64 * GIB
USABLE_BYTES = round(60.97 * GIB)
ADVISED_BYTES = 58 * GIB


def _check(config: Config) -> Iterator[Found]:
    found = _pool_bytes(config)
    if found is None:
        return
    hardware = config.plan.hardware if config.plan is not None else None
    device, usable, advised = DEVICE_BYTES, USABLE_BYTES, ADVISED_BYTES
    if hardware is not None and hardware.memory_bytes != DEVICE_BYTES:
        device, usable, advised = hardware.memory_bytes, round(hardware.memory_bytes * 0.953), round(hardware.memory_bytes * 0.906)
    key = ".".join(POOL_KEY)
    text = format_bytes(found) if (stated := config.get(key)) is None else stated
    if found >= usable:
        message = say(
            "{text} leave no room on a device of {amount}, of which {second} can be used",
            text=text,
            amount=format_bytes(device),
            second=format_bytes(usable),
        )
        yield Found(message=message, key=key)
    elif found > advised:
        message = say(
            "{text} are more than the advised {amount} on a device of {second}",
            text=text,
            amount=format_bytes(advised),
            second=format_bytes(device),
        )
        yield Found(message=message, key=key, severity="warning")


def _pool_bytes(config: Config) -> int | None:
    """The limit of the pool, as the plan has it; of a file that makes no plan as its text says."""
    if config.plan is not None:
        limit = config.plan.memory_limit
        return limit.limit_bytes if limit is not None and limit.part == "pool" else None
    try:
        return size_of(str(config.get(".".join(POOL_KEY))))
    except ValueError:
        return None


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
