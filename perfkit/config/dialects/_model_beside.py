"""The model of a configuration that states no sizes: a Hugging Face config.json in a folder beside it, or the folder's name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from perfkit.config.dialects import huggingface
from perfkit.config.dialects._huggingface_model import FILE, file_of_model
from perfkit.config.dialects._section import Reading
from perfkit.config.dialects.dialect import Document
from perfkit.core import catalog
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.workload import Workload

LLAMA = re.compile(r"^(?:Meta-)?Llama-([23])(?:\.[01])?-(\d+b)(?=-|$)", re.IGNORECASE)
"""How publishers spell what the catalogue calls llama3-70b; 3.1 has the shapes of 3."""
QWEN = re.compile(r"^Qwen2\.5-(7b|72b)(?=-|$)", re.IGNORECASE)
"""Sizes in which 2.5 has the shapes of 2, but for a vocabulary that is padded alike."""
USUAL = Workload(seq_length=huggingface.USUAL_LENGTH, micro_batch_size=1, global_batch_size=1)


def model_beside(reading: Reading, key: str, folder: str = "") -> tuple[ModelSpec, Workload] | None:
    """The model of `folder` (stated under `key`), or beside the file, and one sequence of it; None once a problem is noted."""
    if file := next(_files(reading.document.path, folder), None):
        text = file.read_text(encoding="utf-8", errors="replace")
        plan = reading.build(lambda: huggingface.read(Document(name=file.name, text=text, path=file)))
        reading.note(f"{FILE} of {folder or 'the same folder'} gives the model")
        return None if plan is None else (plan.model, plan.workload)
    if model := _named(Path(folder).name):
        reading.default(key, f"{model.name}: the model of the catalogue whose name the folder has")
        return model, USUAL
    reading.problem(key, f"names no folder with a Hugging Face {FILE}, which has the sizes of the model; put it beside this file")
    return None


def _files(path: Path | None, folder: str) -> Iterator[Path]:
    if path is not None:
        for place in ([path.parent / folder] if folder else []) + [path.parent]:
            if file := file_of_model(place):
                yield file


def _named(name: str) -> ModelSpec | None:
    """The model whose name a folder begins with, as Qwen3-30B-A3B-merged does; of several the longest.

    A folder may leave out how many parameters are active (qwen3-235b): then it is the only model that begins so.
    """
    plain = QWEN.sub(r"qwen2-\1", LLAMA.sub(r"llama\1-\2", name))
    words = plain.replace("_", "-").split("-")
    starts = ["-".join(words[:count]) for count in range(len(words), 0, -1)]
    found = next((model for start in starts if start and (model := catalog.find_model(start))), None)
    if found is not None:
        return found
    sized = [start.lower() for start in starts if re.search(r"\d+b$", start, re.IGNORECASE)]
    longer = [one for start in sized for one in catalog.models() if one.lower().startswith(f"{start}-a")]
    return catalog.model(longer[0]) if len(longer) == 1 else None
