"""Timeline: what ran when, on every stream and thread of every rank, down to 1 ns.

The page draws tiles on a canvas and asks for those that it lacks; the kernel answers in a thread of its own, so that a long search
does not hold up a zoom. Neither side ever holds more than what is looked at. Messages of the page and the answers:

    tiles, counters           slices and counters of some units in a range of tiles
    open, cancel              the units of further ranks; not to wait for a rank or a recording any more
    search, hits, next        names that match, their marks in a window, the next one
    walk, detail, flows       a slice beside another, all that is recorded of it, arrows
    select, csv               what ran in a range
    mark, unmark, view        notes, kept in the project; the address of the page
    run, retry, action        another recording, the same again, the bundled sample
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pandas as pd
import traitlets

from perfkit.core.errors import PerfkitError
from perfkit.core.resources import data_folder
from perfkit.core.run import Run
from perfkit.core.texts import say, t, told
from perfkit.explain.ranges import Range
from perfkit.face.widgets import context
from perfkit.face.widgets.page_state import page_state
from perfkit.face.widgets.status import Waiting, failure, loading
from perfkit.face.widgets.timelines import _counters as counting
from perfkit.face.widgets.timelines import _flows as flows
from perfkit.face.widgets.timelines import _search as searching
from perfkit.face.widgets.timelines import _tiles as wire
from perfkit.face.widgets.timelines._address import address_of, address_of_lanes, asked_for, lanes_at, rank_in, slice_at
from perfkit.face.widgets.timelines._aside import make_tiles
from perfkit.face.widgets.timelines._marks import keep, read_marks
from perfkit.face.widgets.timelines._opening import Openings, Shown
from perfkit.face.widgets.timelines._queue import TaskQueue
from perfkit.face.widgets.timelines._selection import as_csv, detailed, selected, slice_named, walked_to
from perfkit.face.widgets.timelines.data import MAX_FIRST_RANKS, Timeline, described, open_timeline, safely
from perfkit.face.widgets.values import Value
from perfkit.face.widgets.view import View
from perfkit.face.widgets.worker import Cancelled, Progress

Message = dict[str, Any]
_PLACE = ("from", "to", "slice", "pins", "filter", "search")
"""What the address says of a view: window in ns, chosen slice, pinned lanes, units that are shown, names that are searched."""
_SHOW = "show"
"""What a link from elsewhere asks to select; the view that it becomes takes its place in the address."""
_BAD_REQUESTS = (PerfkitError, LookupError, ValueError, TypeError, OSError)


class TimelineView(View):
    """A timeline on a page; `timeline` is there once the recording was read.

    `selection` is the range that was picked last, by a click on a slice or by dragging, to be followed by a step: a `Range` of
    `perfkit.explain.ranges`. `chosen` is that range now.
    """

    link = ""
    """The page that shows the same view; "" for that of the timeline itself, whose address is one."""
    beside = False
    """Whether it stands beside the first one of the page, and moves with it."""
    name = traitlets.Unicode("timeline").tag(sync=True)
    label = traitlets.Unicode().tag(sync=True)
    status = traitlets.Dict().tag(sync=True)
    setup = traitlets.Dict().tag(sync=True)
    pending = traitlets.Dict().tag(sync=True)

    def __init__(self, run: str | Run = "", *, own: bool = False, picked: bool = False) -> None:
        self.timeline: Timeline | None = None
        self.error: Exception | None = None
        self.search: searching.Search | None = None
        self._members: pd.DataFrame | None = None
        self._sought = ""
        self._opened = ""
        self._given = run if isinstance(run, Run) else None  # it lies nowhere: its path is ""
        self._is_own = own  # not that of the page's address
        self._is_picked = picked  # by something else on the page
        asked = "" if own else page_state().get("run")
        self._path = "" if isinstance(run, Run) else asked or run or context.first_run(context.SAMPLES)
        self._drawing, self._asking, self._searching = TaskQueue("tiles"), TaskQueue("questions"), TaskQueue("search")
        self.selection = Value(t("What ran when"))
        self._opening, self._openings = TaskQueue("ranks"), Openings(self._show_pending)
        self._reading: Progress | None = None
        super().__init__(kind="timeline", status=loading(), label=t("Recording below it") if self.beside else t("Timeline"))
        page_state().on_change(self._on_address)
        self._picked(None)
        self._begin()

    def _begin(self) -> None:
        """What the page shows first."""
        self._asking.put(self._open)

    @property
    def chosen(self) -> Range:
        """The range that was picked last; raises NothingYet before somebody picked one."""
        picked: Range = self.selection.wait()
        return picked

    def select(self, *ranks: int, start_ns: int, end_ns: int, name: str = "") -> TimelineView:
        """Pick a range of the common clock on some ranks, as dragging does on the page."""
        self._picked(Range(ranks=ranks, start_ns=start_ns, end_ns=end_ns, name=name))
        return self

    def _picked(self, picked: Range | None) -> None:
        self.selection.begin()
        nothing = Waiting(t("Click a slice above, or drag over a range: what was computed, sent and done in it is told here."))
        self.selection.finish(self.selection.question(), picked, None if picked else nothing)

    def _pick(self, timeline: Timeline, message: Message) -> None:
        """What a click on a slice, or a range that was dragged over, means for the steps that follow."""
        start_ns, end_ns = (timeline.base_ns + round(message[name]) for name in ("start", "end"))
        numbers = message["units"] if message["type"] == "select" else [message["unit"]]
        units = [timeline.unit(number) for number in numbers if not counting.is_counter(number)]
        if not units:
            return
        found = slice_named(timeline, message) if message["type"] == "detail" else ""
        self._picked(Range(ranks=tuple(sorted({unit.rank for unit in units})), start_ns=start_ns, end_ns=end_ns, name=found))

    def wait(self, timeout_s: float = 60.0) -> Timeline:
        """The timeline once it is open; raises the error if there is none."""
        if not self._asking.wait(timeout_s) or not self._opening.wait(timeout_s):
            raise TimeoutError(f"the timeline still reads after {timeout_s} s")
        if self.error is not None:
            raise self.error
        assert self.timeline is not None
        return self.timeline

    def on_message(self, message: Message) -> None:
        """What the page asks for; it is answered in a thread."""
        kind = message.get("type")
        if kind in ("tiles", "counters"):
            self._drawing.put(lambda: self._send_tiles(message))
        elif kind in ("run", "retry", "action"):
            self._path = (
                str(data_folder() / next(iter(context.SAMPLES.values()))) if kind == "action" else message.get("path", self._path)
            )
            self._is_own &= kind == "retry"
            self._tell_address(dict.fromkeys((*_PLACE, _SHOW)))
            self._asking.put(self._open)
        elif kind == "view":
            self._share(message)
        elif kind == "open":
            self._open_ranks([int(rank) for rank in message["ranks"]])
        elif kind == "cancel":
            self._cancel(message.get("rank"))
        elif kind == "search":
            self._sought = str(message["text"])  # the search before it ends early
            self._searching.put(lambda: self._answer_question(message))
        else:
            self._asking.put(lambda: self._answer_question(message))

    # In the threads ---------------------------------------------------------

    def _open(self) -> None:
        path = self._path
        if self.timeline is not None and self._opened == path:  # asked for twice: by the page itself and by its address
            return
        self._openings.cancel()
        self._reading = progress = Progress(self._show_progress)

        def tell(*content: Any) -> None:
            if self._path != path:  # another one was asked for meanwhile
                progress.cancel()
            progress(*content)

        try:
            self.timeline, self.search, self._members, self.error = None, None, None, None
            self._picked(None)
            run = self._given if self._given is not None and not path else context.read_run(path, tell)
            ranks = self._ranks(run)
            make_tiles(path, run, ranks or (*run.ranks[:MAX_FIRST_RANKS], *self._ranks_of_address()), tell)
            timeline = open_timeline(run, ranks)
        except Cancelled as cancelled:
            if progress.by_visitor:
                self._fail(cancelled)
            return
        except Exception as error:  # every end of reading is a state that the visitor sees
            self._fail(error)
            return
        self.timeline, self._opened = timeline, path
        self._show(timeline)

    def _fail(self, error: Exception) -> None:
        self.error = error
        with self.lock:
            self.status = failure(error, t("Use the sample profile"))

    def _cancel(self, rank: object) -> None:
        """The visitor does not wait any more: for a rank, or for the recording."""
        if isinstance(rank, int):
            self._openings.cancel(rank)
        elif self._reading is not None:
            self._reading.cancel(by_visitor=True)

    def _open_ranks(self, ranks: Sequence[int]) -> None:
        """Open further ranks one after another, without holding up the questions about those that are there."""
        for rank in ranks:
            if (progress := self._openings.add(rank)) is not None:
                self._opening.put(partial(self._open_rank, self.timeline, rank, progress))

    def _open_rank(self, timeline: Timeline | None, rank: int, progress: Progress) -> None:
        problem = ""
        try:
            progress.check()
            self._openings.begin(rank)
            if timeline is not None and timeline is self.timeline:
                make_tiles(self._opened, timeline.run, [rank], progress)
                problem = safely(timeline, [rank])
        except Cancelled:
            timeline = None
        except Exception as error:  # the others are there; what is wrong with this one is said beside them
            problem = say("Rank {rank} cannot be shown: {why}", rank=str(rank), why=str(error))
        if timeline is not None and timeline is self.timeline:
            self._show(timeline, problem, go=False)
        self._openings.done(rank)

    def _ranks_of_address(self) -> tuple[int, ...]:
        state = page_state()
        ranks = (rank_in(lane) for lane in (state.get("slice"), state.get(_SHOW), *state.get("pins").split("\n")))
        return tuple(dict.fromkeys(rank for rank in ranks if rank is not None))

    def _ranks(self, _run: Run) -> tuple[int, ...]:
        """The ranks to open first; none of them: as many as come soon."""
        return ()

    def _show(self, timeline: Timeline, problem: str = "", *, go: bool = True) -> None:
        """Describe the recording to the page, which goes to the place that the address asks for unless it stays where it is."""
        setup = {
            **described(timeline),
            "path": self._opened,
            "options": [[told(label), path, told(group)] for label, path, group in context.run_options()],
            "marks": [{**mark, "start": timeline.offset(int(mark["at"]))} for mark in read_marks(timeline.run.name)],
            "problem": told(problem),
            "goto": self._goto(timeline) if go else self.setup.get("goto"),
            "link": self.link,
            "beside": self.beside,
            "picked": self._is_picked,
            "run": timeline.run.name,
        }
        with self.lock, self.hold_sync():
            self.setup = setup
            self.status = {"state": "result"}

    def _show_progress(self, what: str, done: int, total: int) -> None:
        with self.lock:
            self.status = loading(what, done, total)

    def _show_pending(self, ranks: Shown) -> None:
        with self.lock:
            self.pending = dict(ranks)

    def _send_tiles(self, message: dict[str, Any]) -> None:
        timeline = self.timeline
        if timeline is None:  # another recording is being read
            self._answer({"type": message["type"], "seq": message.get("seq"), "later": True})
            return
        try:
            if message["type"] == "counters":
                header, buffers = counting.reply(timeline.counters, timeline.base_ns, message)
            else:
                header, buffers = wire.reply(timeline, message)
        except _BAD_REQUESTS as error:
            self._answer({"type": message["type"], "seq": message.get("seq"), "problem": told(str(error))})
            return
        self._answer({"type": message["type"], "seq": message.get("seq"), **header}, buffers)

    def _answer(self, content: dict[str, Any], buffers: list[bytes] | None = None) -> None:
        with self.lock:
            self.send(content, buffers)

    # Questions --------------------------------------------------------------

    def _answer_question(self, message: Message) -> None:
        timeline = self.timeline
        if timeline is None:
            return
        try:
            reply = _QUESTIONS[message["type"]](self, timeline, message)
        except _BAD_REQUESTS as error:
            reply = {"type": "found", "slice": None, "text": told(str(error))}
        if reply is not None:
            self._answer(reply)
        if message["type"] in ("detail", "select") and reply is not None and reply["type"] != "found":
            self._pick(timeline, message)

    def _mark(self, timeline: Timeline, message: Message) -> None:
        note = str(message["note"]) if message["type"] == "mark" else ""
        self._show(timeline, keep(timeline.run.name, message["at"], note), go=False)

    def _search(self, timeline: Timeline, message: Message) -> None:
        text = str(message["text"])

        def tell(search: searching.Search) -> None:
            first = searching.following(timeline, search, {**message, "direction": 1}) if self.search is not search else None
            self.search = search
            start_ns, end_ns = timeline.span_ns
            whole = {"start": timeline.offset(start_ns), "end": timeline.offset(end_ns + 1), "pixels": 2000}
            self._answer({**searching.told(search), "marks": searching.marks(timeline, search, whole), "first": first})

        searching.searched(timeline, text, tell, lambda: self._sought == text)

    def _hits(self, timeline: Timeline, message: Message) -> Message | None:
        if self.search is None:
            return None
        return {**searching.told(self.search), "marks": searching.marks(timeline, self.search, message), "first": None}

    def _next(self, timeline: Timeline, message: Message) -> Message:
        found = searching.following(timeline, self.search, message) if self.search is not None else None
        return {"type": "found", "slice": found, "zoom": True, "text": t("No hit.")}

    def _detail(self, timeline: Timeline, message: Message) -> Message:
        reply = detailed(timeline, message)
        if int(message["count"]) > 1 or counting.is_counter(message["unit"]):
            return reply
        start_ns, end_ns = (timeline.base_ns + round(message[name]) for name in ("start", "end"))
        links = flows.of_slice(timeline, timeline.unit(message["unit"]), start_ns, end_ns, self._collectives(timeline))
        return {**reply, "arrows": flows.arrows(timeline, links)}

    def _flows(self, timeline: Timeline, message: Message) -> Message:
        start_ns, end_ns = (timeline.base_ns + round(message[name]) for name in ("start", "end"))
        links, total = flows.of_window(timeline, start_ns, end_ns, self._collectives(timeline))
        form = "{drawn} of {total} arrows are drawn; zoom in for the others." if total > len(links) else "{total} arrows."
        text = told(say(form, drawn=str(len(links)), total=str(total)))
        return {"type": "flows", "arrows": flows.arrows(timeline, links), "text": text}

    def _collectives(self, timeline: Timeline) -> pd.DataFrame:
        if self._members is None:
            self._members = flows.members(timeline)
        return self._members

    # The address ------------------------------------------------------------

    def _share(self, message: Message) -> None:
        """Keep the view in the address."""
        timeline = self.timeline
        if timeline is None or message.get("path", self._opened) != self._path:  # the view of a recording that is left
            return
        window = int(message["start"]), int(message["end"])
        at = address_of(timeline, message.get("slice"))
        pins = address_of_lanes(timeline, message.get("pins", ()))
        texts = [str(message.get(name) or "") for name in ("filter", "search")]
        place = dict(zip(_PLACE, (*window, at, pins, *texts), strict=True))
        self._tell_address({_SHOW: None, **{name: value or None for name, value in place.items()}})

    def _tell_address(self, values: Mapping[str, Any]) -> None:
        page_state().set({**({} if self._is_own else {"run": self._path}), **values}, origin=self)

    def _on_address(self, values: Mapping[str, str], origin: object) -> None:
        if origin is self:
            return
        if not self._is_own and values.get("run", self._path) != self._path:
            self._path = values["run"]
            self._asking.put(self._open)
        elif any(name in values for name in (*_PLACE, _SHOW)):
            self._asking.put(self._follow)

    def _follow(self) -> None:
        """Show the view that the address asks for now, in the recording that is open."""
        timeline = self.timeline
        if timeline is not None:
            self._open_missing(timeline, self._ranks_of_address())
            self._show(timeline)

    def _open_missing(self, timeline: Timeline, ranks: Sequence[int]) -> None:
        """Open those of some ranks that are not open yet, in this thread."""
        for rank in set(ranks).intersection(timeline.run.ranks) - timeline.opened:
            if (progress := self._openings.add(rank)) is not None:
                self._open_rank(timeline, rank, progress)

    def _goto(self, timeline: Timeline) -> Message | None:
        """The view that the address asks for."""
        start, end, at, pins, text, sought = place = [page_state().get(name) for name in _PLACE]
        show = page_state().get(_SHOW)
        if not any((*place, show)):
            return None
        found = {"id": "-".join((*place, show)), "start": start, "end": end, "filter": text, "search": sought}
        if show and not at:
            chosen, lanes = asked_for(timeline, show)
            return {**found, "slice": chosen, "pins": lanes}
        return {**found, "slice": slice_at(timeline, at), "pins": lanes_at(timeline, pins)}


Question = Callable[[TimelineView, Timeline, Message], Message | None]
_QUESTIONS: dict[str, Question] = {
    "mark": TimelineView._mark,
    "unmark": TimelineView._mark,
    "search": TimelineView._search,
    "hits": TimelineView._hits,
    "next": TimelineView._next,
    "detail": TimelineView._detail,
    "flows": TimelineView._flows,
    "walk": lambda _view, timeline, message: walked_to(timeline, message),
    "select": lambda _view, timeline, message: selected(timeline, message),
    "csv": lambda _view, timeline, message: as_csv(timeline, message),
}
