"""Pairs: spans of a trace that were written as two events, a beginning and an end.

`B` and `E` nest on their thread: an end closes the innermost open beginning, or the innermost of its name if it has one. `b` and
`e` belong together by category and id and may overlap, so each id gets a thread of its own. Events of a thread may stand in the
file in any order: from the first sign of disorder on, those of its thread are sorted by time before they are paired.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

NO_END = "beginning of an event without its end"
NO_BEGINNING = "end of an event without its beginning"
NO_TIME = "beginning or end of an event without a time"
DISORDER = "beginning or end that goes back in time: the spans of its thread that ended before it in the file may be too long"
Timed = tuple[Decimal, Any]


@dataclass(slots=True)
class _Thread:
    """Beginnings that are open, and once `late` is not None all events since the first sign of disorder."""

    open: list[Timed] = field(default_factory=list)
    last: Decimal = Decimal("-Infinity")
    ended: Decimal = Decimal("-Infinity")
    late: list[Timed] | None = None


class Pairs:
    """Turns events of `begins` and `ends` (types mapped to whether they are asynchronous) into objects of the type `span`.

    All are msgspec types with the fields `name`, `cat`, `ts`, `dur`, `pid`, `tid` and `args`; asynchronous ones also have `id`.
    What has no partner is counted in `lost`.
    """

    def __init__(self, span: type[Any], begins: Mapping[type[Any], bool], ends: Mapping[type[Any], bool]) -> None:
        self.lost: Counter[str] = Counter()
        self._span = span
        self._begins = frozenset(begins)
        self._asynchronous = {**begins, **ends}
        self._threads: dict[tuple[str, ...], _Thread] = {}

    def take(self, events: list[Any]) -> list[Any]:
        """The spans that end in this block of events."""
        spans: list[Any] = []
        begun: list[Any] = []
        if self._asynchronous.keys().isdisjoint(map(type, events)):
            return spans
        for event in [event for event in events if type(event) in self._asynchronous]:
            moment = _moment(event.ts)
            if moment is None:
                self.lost[NO_TIME] += 1
                continue
            thread = self._threads.setdefault(self._key(event), _Thread())
            if thread.open and thread.late is None and self._is_disorder(thread, moment, event):
                self.lost[DISORDER] += moment < thread.ended
                thread.late, thread.open = thread.open, []
            thread.last = moment
            if type(event) in self._begins or thread.late is not None:
                begun.append(event)
            if thread.late is not None:
                thread.late.append((moment, event))
            else:
                self._step(thread, moment, event, spans)
        for event in begun:  # those that are still open would keep the text of their whole block alive
            _detach(event)
        return spans

    @property
    def settled(self) -> bool:
        """Whether what was taken says nothing of what comes next: no thread has begun or ended anything, nothing is lost."""
        return not self.lost and not self._threads

    def rest(self) -> list[Any]:
        """After the last block: the spans of events that were out of order; what is still open is lost."""
        spans: list[Any] = []
        for thread in self._threads.values():
            # at one moment ends come first, so that neighbours do not nest
            for moment, event in sorted(thread.late or [], key=lambda timed: (timed[0], type(timed[1]) in self._begins)):
                self._step(thread, moment, event, spans)
            self.lost[NO_END] += len(thread.open)
        self._threads.clear()
        return spans

    def _key(self, event: Any) -> tuple[str, ...]:
        if self._asynchronous[type(event)]:
            return ("async", event.cat or "", f"{event.id}")
        return ("thread", f"{event.pid}", f"{event.tid}")

    def _is_disorder(self, thread: _Thread, moment: Decimal, event: Any) -> bool:
        """Whether time goes back, or an end names a beginning that is not the innermost one."""
        inner = thread.open[-1][1].name
        crossed = type(event) not in self._begins and event.name and inner and inner != event.name
        return moment < thread.last or bool(crossed)

    def _step(self, thread: _Thread, moment: Decimal, event: Any, spans: list[Any]) -> None:
        """Take the next event of a thread, in order of time."""
        if type(event) in self._begins:
            thread.open.append((moment, event))
            return
        at = len(thread.open) - 1
        if event.name:
            while at >= 0 and (thread.open[at][1].name or event.name) != event.name:
                at -= 1
        if at < 0:
            self.lost[NO_BEGINNING] += 1
            return
        self.lost[NO_END] += len(thread.open) - at - 1
        since, begin = thread.open[at]
        thread.ended = moment
        del thread.open[at:]
        spans.append(
            self._span(
                name=begin.name or event.name,
                cat=begin.cat or event.cat,
                ts=begin.ts,
                dur=msgspec.Raw(f"{moment - since:f}".encode()),
                pid=begin.pid,
                tid=f"{begin.tid} async {begin.id}" if self._asynchronous[type(begin)] else begin.tid,
                args=event.args if begin.args is None else begin.args,
            )
        )


def _moment(ts: msgspec.Raw) -> Decimal | None:
    try:
        moment = Decimal(bytes(ts).strip(b'"').decode("ascii"))
    except (InvalidOperation, UnicodeDecodeError):
        return None
    # what is far beyond 64 bits of ns has no exact difference
    return moment if moment.is_finite() and abs(moment.adjusted()) < 20 else None


def _detach(event: Any) -> None:
    """Copy the texts that an event refers to."""
    event.ts = event.ts.copy()
    for name in getattr(event.args, "__struct_fields__", ()):
        value = getattr(event.args, name)
        if type(value) is msgspec.Raw:
            setattr(event.args, name, value.copy())
