"""Flame of a range: what ran inside of what on host threads, added up by the way from the outermost call."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from perfkit.core.texts import say, told
from perfkit.face.widgets.timelines.data import Unit

MAX_CALLS = 200_000
"""Calls that are added up; of a longer range the first."""
MAX_BOXES = 400
LEAST = 0.001
"""Share of the whole below which a box would be no more than a line."""


@dataclass(slots=True)
class Node:
    """What one way of calls took, and what ran inside of it, by name."""

    total_ns: int = 0
    count: int = 0
    inside: dict[str, Node] = field(default_factory=dict)

    @property
    def own_ns(self) -> int:
        """What is left of it beside what ran inside."""
        return self.total_ns - sum(node.total_ns for node in self.inside.values())


@dataclass(slots=True)
class _Call:
    """A call that has not ended yet; what it took since `since_ns` is not added to its node yet."""

    lane: int
    end_ns: int
    name: str
    node: Node
    since_ns: int


class Flame:
    """Adds up calls of host threads by what was around them at every moment: the calls of the lanes above, of which none overlap.

    So what runs inside never takes longer than what it runs in, also where events of two profilers overlap in part.
    """

    def __init__(self) -> None:
        self.root = Node()
        self._open: dict[int, list[_Call]] = {}
        self._left = MAX_CALLS

    def add(self, unit: Unit, rows: pd.DataFrame) -> None:
        """Add rows of a range, with `inside_ns` and `until_ns`, a thread's in the order of time; only threads of a host count."""
        if unit.process != "host" or not self._left:
            return
        rows = rows[rows["inside_ns"] > 0].sort_values(["start_ns", "lane"], kind="stable").head(self._left)
        self._left -= len(rows)
        calls = self._open.setdefault(unit.id, [])
        columns = (rows[name].tolist() for name in ("until_ns", "inside_ns", "lane", "name"))
        for until_ns, inside_ns, lane, name in zip(*columns, strict=True):
            self._end(calls, until_ns - inside_ns)
            self._begin(calls, int(lane), int(until_ns), str(name), int(until_ns - inside_ns))

    def _begin(self, calls: list[_Call], lane: int, end_ns: int, name: str, at_ns: int) -> None:
        place = sum(call.lane < lane for call in calls)
        around = calls[place - 1].node if place else self.root
        node = around.inside.setdefault(name, Node())
        node.count += 1
        calls.insert(place, _Call(lane, end_ns, name, node, at_ns))
        self._move(calls, place + 1, at_ns)

    def _end(self, calls: list[_Call], until_ns: int) -> None:
        """Take out, one after the other, the calls that end until a moment."""
        while calls and (first := min(calls, key=lambda call: call.end_ns)).end_ns <= until_ns:
            place = calls.index(first)
            first.node.total_ns += first.end_ns - first.since_ns
            del calls[place]
            self._move(calls, place, first.end_ns)

    def _move(self, calls: list[_Call], place: int, at_ns: int) -> None:
        """What is open from `place` on runs inside of another call from now on."""
        for index in range(place, len(calls)):
            call = calls[index]
            call.node.total_ns += at_ns - call.since_ns
            around = calls[index - 1].node if index else self.root
            call.node, call.since_ns = around.inside.setdefault(call.name, Node()), at_ns

    def finish(self) -> Node:
        """End what is still open; the outermost calls are `inside` of the root."""
        for calls in self._open.values():
            self._end(calls, max((call.end_ns for call in calls), default=0))
        return self.root

    def boxes(self) -> list[dict[str, Any]]:
        """The boxes to draw, the widest `MAX_BOXES`: `depth`, `left` and `width` as shares of the whole, `name` and `text`."""
        whole_ns = sum(node.total_ns for node in self.finish().inside.values())
        found: list[dict[str, Any]] = []
        todo = [(self.root, 0, 0)]
        while todo:
            around, depth, left_ns = todo.pop()
            for name, node in sorted(around.inside.items(), key=lambda item: -item[1].total_ns):
                if node.total_ns < LEAST * whole_ns or not node.total_ns:
                    break
                text = say(
                    "{total_ns} in {count} call(s), {own_ns} of it in none of those inside",
                    total_ns=node.total_ns,
                    count=str(max(1, node.count)),
                    own_ns=node.own_ns,
                )
                box = {
                    "depth": depth,
                    "left": left_ns / whole_ns,
                    "width": node.total_ns / whole_ns,
                    "name": name,
                    "text": told(text),
                }
                found.append(box)
                todo.append((node, depth + 1, left_ns))
                left_ns += node.total_ns
        return sorted(found, key=lambda box: (-box["width"], box["depth"]))[:MAX_BOXES]
