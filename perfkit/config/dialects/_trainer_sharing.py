"""How a Trainer shares what a device keeps: DeepSpeed by a file or a section, or FSDP by words and a section."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perfkit.config.dialects import _json_object
from perfkit.config.dialects._deepspeed_engine import Engine, engine_of
from perfkit.config.dialects._section import Reading, Section, shown
from perfkit.config.dialects.dialect import Document, Parsed
from perfkit.config.dialects.key_effects import left_over
from perfkit.core.errors import InputError
from perfkit.core.roots import is_allowed
from perfkit.core.texts import say

MAX_BYTES, MOST_ABOVE = 1_000_000, 4
STAGE_IN_NAME = re.compile(r"(?:z|zero|stage)[-_]?([0-3])(?!\d)", re.IGNORECASE)
FSDP = {"full_shard": 3, "shard_grad_op": 2, "hybrid_shard": 3, "hybrid_shard_zero2": 2, "no_shard": 1}
"""What FSDP shares, by the words of the library, as stages of ZeRO; hybrid inside a node."""
FSDP_ALSO = ("offload", "auto_wrap")
NODE = 8
"""Devices of a node, inside of which a hybrid shares."""
SAME = {
    "train_micro_batch_size_per_gpu": "per_device_train_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
}
"""Values of DeepSpeed's that the library refuses if they are not its own (`HfTrainerDeepSpeedConfig.fill_match`)."""


NAMED_LAST = re.compile(r"([\w.-]+\.json)['\")\]]*$")
LEFT_OPEN = {"deepspeed": re.compile(r"^\$(?!.*\.json$)\w+(?:\.\w+)+$"), "fsdp": re.compile(r"\$")}
"""What the caller decides: of DeepSpeed's file the name tells something also where the folder before it is not known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sharing:
    """What is shared: `level` is the stage of ZeRO, 0 for nothing, `framework` who does it ("": copies that sum gradients).

    `inside` is the number of devices that share, 0 for all; `engine` is DeepSpeed's; `unread` and `unknown` are keys of its file.
    """

    framework: str = ""
    level: int = 0
    inside: int = 0
    repeats: bool = False
    engine: Engine | None = None
    unread: tuple[tuple[str, str], ...] = ()
    unknown: tuple[str, ...] = ()


def sharing_of(options: Section, batch: int) -> Sharing:
    """How the arguments share; every bad value is noted. `batch` are the samples of a device that the program takes by itself.

    What the file leaves to its caller (`fsdp=args.fsdp`) is taken for switched off, and said.
    """
    deepspeed, fsdp = (_stated(options, *keys) for keys in (("deepspeed", "deepspeed_config"), ("fsdp",)))
    if deepspeed not in (None, False, True, ""):
        if fsdp:
            options.reading.problem("fsdp", f"{shown(fsdp)} stands beside deepspeed, which shares too; keep one")
        return _of_deepspeed(options, deepspeed, batch)
    if deepspeed is True:  # Bare: the script has its own settings, DeepSpeed-Chat's --zero_stage.
        level = min(3, options.integer("zero_stage", default=0))
        return Sharing(framework="deepspeed", level=level, engine=_plain_engine(level))
    return _of_fsdp(options, fsdp) if fsdp else Sharing()


def _stated(options: Section, *keys: str) -> Any:
    value = options.raw(*keys)
    if not (isinstance(value, str) and LEFT_OPEN[keys[0]].search(value)):
        return value
    options.reading.default(keys[0], f"off: the file leaves it to {value.removeprefix('$')}")
    return None


def _of_deepspeed(options: Section, value: object, batch: int) -> Sharing:
    reading = options.reading
    if isinstance(value, Mapping):
        own = Reading(reading.document, lines=_inside(reading.lines, options.path("deepspeed")))
        return _shared_by(options, own, value, "deepspeed", batch)
    named = str(value)
    if "$" in named and (last := NAMED_LAST.search(named)):  # os.path.join(HERE, "ds_z2.json")
        named = last[1]
    file = file_beside(reading.document, named)
    if file is None:
        return _by_name(reading, named)
    found = _opened(options, "deepspeed", file)
    if found is None:
        return Sharing(framework="deepspeed")
    reading.note(say("{name} says what DeepSpeed shares", name=file.name))
    return _shared_by(options, *found, file.name, batch)


def _opened(options: Section, key: str, file: Document) -> tuple[Reading, Mapping[str, Any]] | None:
    """A JSON file that an argument names, to be read; None for one that is broken, which is noted."""
    text = _json_object.plain(file.text)
    try:
        parsed = _json_object.parse(text, file.name)
    except InputError as error:
        options.reading.problem(key, f"{file.name}: {error.problems[0]}")
        return None
    own, _ = Reading.of(replace(file, text=text), Parsed(parsed.values, parsed.lines))
    return own, parsed.values


def _inside(lines: Mapping[str, int], place: str) -> dict[str, int]:
    return {key.removeprefix(f"{place}."): line for key, line in lines.items() if key.startswith(f"{place}.")}


def _shared_by(options: Section, own: Reading, values: Mapping[str, Any], name: str, batch: int) -> Sharing:
    """What DeepSpeed's settings share; its problems are told with their place, and those between both files."""
    top = Section(own, "", values)
    engine = engine_of(top, usual_dtype="")  # accelerate adds the section that is missing (`set_mixed_precision`)
    own.used.add("train_batch_size")
    for key, other in SAME.items():
        stated, wanted = top.raw(key), options.values.get(other, batch if other.startswith("per_") else 1)
        if isinstance(stated, int) and isinstance(wanted, int) and stated != wanted:
            own.problem(key, f'{stated} is not {other} = {wanted}, which the library refuses; write "auto" or {wanted}')
    for problem in own.problems:
        options.reading.problem("deepspeed", problem if name == "deepspeed" else f"{name}: {problem}")
    options.reading.defaulted += own.defaulted
    left = left_over("deepspeed", values, own.used - own.sections)
    return Sharing(
        framework="deepspeed",
        level=min(3, engine.stage),
        engine=engine,
        unread=tuple((f"{name}: {key}", why) for key, why in left.unread),
        unknown=tuple(f"{name}: {key}" for key in left.unknown),
    )


def _by_name(reading: Reading, named: str) -> Sharing:
    """What a file that is not here shares, as far as its name says it."""
    name = Path(named).name
    found = STAGE_IN_NAME.search(name)
    level = int(found[1]) if found else 3
    told = f"{name} is not beside this file, {'its name says it' if found else 'most share all'}; put it there"
    if "." not in name and "$" not in name:  # ms-swift's zero2, zero3_offload
        told = f"the program's own settings of the name {name}"
    reading.default("optimizer_shard_level", f"{level}: {told}")
    unread = ((f"deepspeed: {name}", "time and memory: groups, precisions and what waits on the host, which that file says"),)
    return Sharing(framework="deepspeed", level=level, engine=_plain_engine(level), unread=unread)


def _plain_engine(level: int) -> Engine:
    return Engine(
        stage=level, overlap=level == 3, tensor=1, stages=1, context=1, experts=1, dtype="", off=(), sums="", optimizer=""
    )  # fmt: skip


def _of_fsdp(options: Section, value: object) -> Sharing:
    given = value if isinstance(value, list) else re.split(r"[\s,]+", "full_shard" if value is True else str(value).strip())
    words = [str(word) for word in given]  # a list of YAML's may hold anything
    chosen = [word for word in words if word in FSDP]
    for word in words:
        if word not in FSDP and word not in FSDP_ALSO:
            near = difflib.get_close_matches(word, (*FSDP, *FSDP_ALSO), n=1, cutoff=0)[0]
            options.reading.problem("fsdp", f"{shown(word)} must be one of {', '.join((*FSDP, *FSDP_ALSO))}; nearest is {near}")
    kind = chosen[0] if chosen else "full_shard"
    config = options.section("fsdp_config") if isinstance(options.values.get("fsdp_config"), Mapping) else None
    repeats = config is not None and config.flag("activation_checkpointing", "fsdp_activation_checkpointing", default=False)
    level = FSDP[kind]
    if config is not None and config.raw("reshard_after_forward", "fsdp_reshard_after_forward") is False:
        level = min(level, 2)
    moved = "memory and time: parameters and gradients wait on the host"
    return Sharing(
        framework="fsdp",
        level=0 if kind == "no_shard" else level,
        inside=_shared_inside(options, kind),
        repeats=repeats,
        unread=(("fsdp: offload", moved),) if "offload" in words else (),
    )


def _shared_inside(options: Section, kind: str) -> int:
    """Devices of a group that shares, of which there are several; 0 for all."""
    shared = options.positive_int("dp_shard_size", default=1)
    if options.positive_int("dp_replicate_size", default=1) > 1:
        return shared
    return NODE if kind.startswith("hybrid") else 0


def with_settings_beside(options: Section) -> Section:
    """The arguments with the settings of FSDP that they name a JSON file of, where it lies here, as a section of their own."""
    stated = options.values.get("fsdp_config")
    file = file_beside(options.reading.document, stated) if isinstance(stated, str) and options.values.get("fsdp") else None
    found = None if file is None else _opened(options, "fsdp_config", file)
    if file is None or found is None:
        return options
    options.reading.note(say("{name} says what FSDP does", name=file.name))
    return replace(options, values={**options.values, "fsdp_config": found[1]})


def file_beside(document: Document, named: str) -> Document | None:
    """A file that a configuration names: one that came along, else from its own folder or one above it, else by its name.

    Programs start in other folders than files lie in.
    """
    if (text := document.came_with(named)) is not None:
        return replace(document, name=Path(named).name, text=text)
    file = None if document.path is None else next(filter(_may_be_read, _places(document.path, named)), None)
    return None if file is None else Document(name=file.name, text=file.read_text(encoding="utf-8", errors="replace"), path=file)


def _places(path: Path, named: str) -> Iterator[Path]:
    folder = path.resolve().parent
    if not Path(named).is_absolute() and ".." not in Path(named).parts:
        yield from (place / named for place in (folder, *folder.parents[:MOST_ABOVE]))
    yield folder / Path(named).name


def _may_be_read(file: Path) -> bool:
    try:
        return is_allowed(file) and file.is_file() and file.stat().st_size <= MAX_BYTES
    except (OSError, ValueError):  # a name that no file can have
        return False
