"""Everything that perfkit says about one or many graph files: what `perfkit graph` prints and page 18 shows."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perfkit.core.errors import InputError
from perfkit.core.spec.hardware import HardwareSpec
from perfkit.explain.graph.activations import by_operator
from perfkit.explain.graph.communications import Communication, find_communications
from perfkit.explain.graph.links import Links, link
from perfkit.explain.graph.missing import Missing, find_missing, num_devices, unpaired_messages
from perfkit.explain.graph.model import GraphFile
from perfkit.explain.graph.parse import Progress, read_file
from perfkit.explain.graph.predict import predicted_s
from perfkit.explain.graph.recompute import RecomputeReport, find_recompute

MAX_FILES = 200
_STAGE = re.compile(r"^(?:\d+_(?!.*validate).*_\d{4}|opt_pass_\d+_.*|hwopt_.*|step_parallel_end_.*|graph_build_\d+_.*)\.ir$")


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphAnalysis:
    """One file with what was found in it."""

    file: GraphFile
    links: Links
    communications: tuple[Communication, ...]
    recompute: RecomputeReport
    missing: tuple[Missing, ...]

    @property
    def num_devices(self) -> int | None:
        """Devices that the file speaks of; None if it names none."""
        return num_devices(self.communications, self.file.nodes())

    def to_json(self) -> dict[str, Any]:
        """The file as `perfkit graph --json` prints it."""
        file, recompute = self.file, self.recompute
        return {
            "node_lines": file.node_lines,
            "skipped_lines": file.skipped_lines,
            "repaired_lines": file.repaired_lines,
            "complete": file.complete,
            "version": file.version,
            "problems": [{"line": problem.line, "what": problem.what, "text": problem.text} for problem in file.problems],
            "communication": [entry.to_json() for entry in self.communications],
            "recompute": [entry.to_json() for entry in recompute.operators],
            "recompute_copies": recompute.num_copies,
            "recompute_saved_bytes": recompute.saved_bytes,
            "recompute_communication_bytes": recompute.repeated_communication_bytes,
            "kept_activation_bytes": recompute.kept_bytes,
            "kept_activation_by_op": None if recompute.kept is None else by_operator(file, recompute.kept),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphReport:
    """All files of a folder, or one. `unread` says of files that were left out why."""

    path: str
    files: dict[str, GraphAnalysis]
    unread: dict[str, str]
    unpaired: tuple[Missing, ...] = ()

    kind = "measured"
    """What the numbers of the report are, as figures say it."""

    @property
    def analysis(self) -> GraphAnalysis:
        """The file of the report, the first one of several."""
        return next(iter(self.files.values()))

    @property
    def name(self) -> str:
        """The name of that file."""
        return self.analysis.file.name

    def of(self, file: str) -> GraphReport:
        """The report of one file, the first one if there is none of that name, with all that the folder says of it."""
        chosen = file if file in self.files else next(iter(self.files))
        return replace(self, files={chosen: self.files[chosen]})

    @property
    def missing(self) -> list[Missing]:
        """What the strategies need and no operator does, of all files."""
        return [*(entry for analysis in self.files.values() for entry in analysis.missing), *self.unpaired]

    def to_json(self) -> dict[str, Any]:
        """The document of `perfkit graph --json`."""
        return {
            "files": {name: analysis.to_json() for name, analysis in self.files.items()},
            "missing": self.missing,
            "unread": [{"file": name, "why": why} for name, why in self.unread.items()],
        }


def read_graph(path: Path | str, *, hardware: HardwareSpec | None = None, progress: Progress | None = None) -> GraphReport:
    """Read a graph file, or the files of a folder, and find communication and recomputation in them.

    Of a folder with final graphs (`*_validate_*.ir`) the files of single compiler passes are left out; they can be read one by one.
    With `hardware` every communication gets a predicted time. Raises InputError if nothing can be read.
    """
    place = Path(path).expanduser()
    if not place.is_dir():
        return GraphReport(path=str(place), files={place.name: analyse(read_file(place, progress=progress), hardware)}, unread={})
    chosen, unread = _choose(place)
    files: dict[str, GraphAnalysis] = {}
    for one in chosen:
        name = one.relative_to(place).as_posix()
        try:
            files[name] = analyse(read_file(one, name=name, progress=progress), hardware)
        except InputError as error:
            unread[name] = "; ".join(error.problems)
    if not files:
        raise InputError(str(place), [f"{name}: {why}" for name, why in unread.items()] or ["holds no .ir file"])
    unpaired = unpaired_messages({name: analysis.communications for name, analysis in files.items()})
    return GraphReport(path=str(place), files=files, unread=unread, unpaired=tuple(unpaired))


def analyse(file: GraphFile, hardware: HardwareSpec | None = None) -> GraphAnalysis:
    """What is in one file that was read."""
    links = link(file)
    found = find_communications(file, links)
    if hardware is not None:
        found = tuple(replace(entry, predicted_s=predicted_s(entry, hardware)) for entry in found)
    return GraphAnalysis(
        file=file,
        links=links,
        communications=found,
        recompute=find_recompute(file, links),
        missing=tuple(find_missing(file, links, found)),
    )


def _choose(folder: Path) -> tuple[list[Path], dict[str, str]]:
    """The files of a folder to read, and why the others are not."""
    found = sorted(folder.rglob("*.ir"))
    final = {path.parent for path in found if "validate" in path.name}
    chosen: list[Path] = []
    left: dict[str, str] = {}
    for path in found:
        if path.parent in final and _STAGE.match(path.name):
            left[path.relative_to(folder).as_posix()] = "one compiler pass; the *_validate_* file holds the result"
        elif len(chosen) == MAX_FILES:
            left[path.relative_to(folder).as_posix()] = f"only {MAX_FILES} files are read at once"
        else:
            chosen.append(path)
    return chosen, left
