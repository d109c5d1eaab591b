"""SiLU and Mul of the feed-forward: four checked questions to a graph, whether their recomputation is in effect.

The guides' case of a recomputation that is configured but saves half of what it should. Every answer is computed from the graph, so
that the same four questions have other answers on other graphs. Bytes are those of one rank.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from perfkit.core.errors import NotMeasuredError
from perfkit.core.looks import brief
from perfkit.core.texts import joined, say
from perfkit.core.units import format_bytes
from perfkit.explain.graph.model import Node
from perfkit.explain.graph.picture import Picture, neighbourhood
from perfkit.explain.graph.recompute import Recomputed, block_of, pattern
from perfkit.explain.graph.report import GraphAnalysis, read_graph

STEPS = (("1 is it configured", 1), ("2 is there a copy", 2), ("3 what does backward read", 3), ("4 what to change", 4))
_PAIR = ("SiLU", "Mul")
_SHOWN = 24
_PASSED, _FAILED = "✓", "✗"


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One question to one graph: what was asked for, what was found, and whether that is good."""

    question: str
    passed: bool
    found: str
    means: str

    def told(self) -> str:
        """The question with its answer, in a line."""
        return say("{mark} {question} {found}. {means}", mark=self.mark, question=self.question, found=self.found, means=self.means)

    @property
    def mark(self) -> str:
        """A tick or a cross."""
        return _PASSED if self.passed else _FAILED


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """SiLU, and the Mul that multiplies its result, of every layer in the forward pass of a graph."""

    analysis: GraphAnalysis
    forward: tuple[Node, ...]

    kind = "measured"
    """What the numbers are, as figures say it."""

    @property
    def name(self) -> str:
        """The name of the graph's file."""
        return self.analysis.file.name

    @property
    def wanted_bytes(self) -> int:
        """Bytes of the results of SiLU and Mul, which stay when nothing is recomputed."""
        return sum(node.out.num_bytes or 0 for node in self.forward)

    @property
    def entries(self) -> tuple[Recomputed, ...]:
        """What is recomputed of them, in effect or not."""
        own = {id(node) for node in self.forward}
        return tuple(entry for entry in self.analysis.recompute.operators if id(entry.node) in own)

    @property
    def lost(self) -> tuple[Recomputed, ...]:
        """What is configured and not in effect."""
        return tuple(entry for entry in self.entries if not entry.in_effect)

    @property
    def patterns(self) -> tuple[str, ...]:
        """The patterns of a recompute list that brings all of it back: both operators, and what must come with them."""
        fixes = sorted({entry.fix for entry in self.lost if entry.fix})
        return tuple(dict.fromkeys([*(pattern(node) for node in self.forward), *fixes]))

    def checks(self) -> tuple[Check, ...]:
        """The four questions, in their order."""
        return (_configured(self), _copied(self), _read(self), _changed(self))

    def told(self) -> tuple[str, ...]:
        """Whether recomputing them is in effect, and what their results hold, in two sentences."""
        layers = len({block_of(node) for node in self.forward})
        held = format_bytes(self.wanted_bytes)
        which = f"{len(self.forward)} operators of {layers} layer{'s' * (layers != 1)}"
        stays = f"Not recomputed, {which} hold {held} until backward."
        return (joined([self._effect_told(), stays]),)

    def _effect_told(self) -> str:
        """Whether what is configured is in effect, in a sentence."""
        if not self.entries:
            return "No: nothing is configured to be computed again."
        if not self.lost:
            return "Yes: all that is configured is computed again."
        working = tuple(entry for entry in self.entries if entry.in_effect)
        if not working:
            return "No: nothing of what is configured is computed again."
        return say("Only in part: {working} are computed again, {lost} are not.", working=_count(working), lost=_count(self.lost))

    def to_frame(self) -> pd.DataFrame:
        """One row an operator: where it is, its tag, its copy, what it holds, and why it is in effect or not."""
        known = {id(entry.node): entry for entry in self.entries}

        def row(node: Node) -> dict[str, object]:
            entry = known.get(id(node))
            return {
                "node": node.label,
                "operator": node.op,
                "layer": block_of(node),
                "pattern": pattern(node),
                "tag": entry.tag if entry else "none",
                "copy": entry.copy.label if entry and entry.copy else "none",
                "result_bytes": node.out.num_bytes,
                "why": entry.why if entry else "not configured",
            }

        frame = pd.DataFrame([row(node) for node in self.forward])
        frame.attrs |= {"title": "SiLU and Mul in this graph", "look": "folded"}
        return brief(frame, "operator", "layer", "result_bytes", "why")

    def picture(self) -> tuple[str, Picture, Node]:
        """Title, picture and middle of what is around the first Mul, with the copies of its layer."""
        center = next(node for node in self.forward if node.op == "Mul")
        layer = block_of(center)
        copies = [entry.copy for entry in self.entries if entry.copy and block_of(entry.shown) == layer]
        drawn = neighbourhood(self.analysis.file, self.analysis.links, center, also=copies, max_nodes=_SHOWN)
        return f"Around the {center.op} of the feed-forward, {layer}, line {center.line}", drawn, center


def read_pair(path: str | Path) -> Pair:
    """SiLU and Mul of the graph at `path`, of the first file of a folder; NotMeasuredError for a graph without them."""
    analysis = read_graph(path).analysis
    found: list[Node] = []
    for node in analysis.file.nodes():
        if node.op == "SiLU" and not node.is_backward:
            users = [user for user, _ in analysis.links.readers(node) if user.op == "Mul" and not user.is_backward]
            found += [node, *users]
    if not any(node.op == "Mul" for node in found):
        raise NotMeasuredError(
            f"SiLU and the Mul behind it: {analysis.file.name} has none in forward",
            how_to_collect="save the graph of a model with a gated feed-forward (SwiGLU)",
        )
    return Pair(analysis=analysis, forward=tuple(found))


def check_table(pairs: Mapping[str, Pair]) -> pd.DataFrame:
    """The four checks, a row each, on every graph, a column each by its name."""
    checks = {name: pair.checks() for name, pair in pairs.items()}
    return pd.DataFrame(
        [
            {"step": title, **{name: f"{given[place].mark} {given[place].found}" for name, given in checks.items()}}
            for place, (title, _) in enumerate(STEPS)
        ]
    )


def case_notes(step: int) -> tuple[str, ...]:
    """What is to be known of the graphs of the case at a step of the story."""
    tried = "The 3-D network with feed_forward.w2.reshape marked was compiled as well: Mul has its copy, all is saved."
    return ("Bytes are those of one rank of a tiny network: hidden 64, two layers.", *([tried] if step == len(STEPS) else []))


def _configured(pair: Pair) -> Check:
    entries = pair.entries
    return Check(
        question="Are SiLU and Mul tagged recompute: Bool(1)?",
        passed=bool(entries) and len(entries) == len(pair.forward),
        found=say("{counted} of {all} operators", counted=_count(entries), all=str(len(pair.forward))),
        means="The configuration reached the graph." if entries else "Nothing was configured, so nothing can be in effect.",
    )


def _copied(pair: Pair) -> Check:
    entries, lost = pair.entries, pair.lost
    working = tuple(entry for entry in entries if entry.in_effect)
    means = "Both are computed again in backward." if entries else "Without a tag there is no copy."
    return Check(
        question="Has each a copy with duplicated: Bool(1)?",
        passed=bool(entries) and not lost,
        found=say("{counted} of {all} tagged", counted=_count(working), all=str(len(entries))),
        means=say("{op} is not computed again: its tag has no effect.", op=lost[0].shown.op) if lost else means,
    )


def _read(pair: Pair) -> Check:
    saved, kept, wanted = pair.analysis.recompute.saved_bytes, pair.analysis.recompute.kept_bytes, pair.wanted_bytes
    question = "Does backward read the copies and not the first results?"
    if saved is None or kept is None:
        found = "what backward keeps is not known"
        return Check(question=question, passed=False, found=found, means="The file has no backward pass, or a shape is missing.")
    form = "{saved_bytes} of {wanted_bytes} saved; {kept_bytes} stay"
    found = say(form, saved_bytes=saved, wanted_bytes=wanted, kept_bytes=kept)
    means = "No first result is kept." if pair.entries else "Backward reads the first results."
    return Check(
        question=question,
        passed=saved >= wanted > 0,
        found=found,
        means=next((entry.why for entry in pair.lost if entry.fix), means),
    )


def _changed(pair: Pair) -> Check:
    fixes = sorted({entry.fix for entry in pair.lost if entry.fix})
    change: str
    if not pair.entries:
        change = say("Configure {patterns}", patterns=joined(sorted(pair.patterns), " and "))
    elif fixes:
        change = say("Add {fixes} (the guides add feed_forward\\.w1\\.reshape as well)", fixes=", ".join(fixes))
    else:
        change = "Nothing: all that was configured is in effect"
    again = bool(fixes) or not pair.entries
    return Check(
        question="Is the list of patterns complete?",
        passed=not again,
        found=change,
        means="Compile again and repeat step 3: all of it must be saved." if again else "The case is closed.",
    )


def _count(entries: tuple[Recomputed, ...]) -> str:
    counted = Counter(entry.shown.op for entry in entries)
    return ", ".join(f"{counted[op]} {op}" for op in _PAIR if counted[op]) or "none"
