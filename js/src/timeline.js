// The timeline: toolbar, unit tree, lanes on a canvas, details. The kernel serves tiles; only what is looked at is held here.
import { el, freshId, markFirst, told, unbroken } from "./dom.js";
import { drawState } from "./panel.js";
import { begin, finish } from "./ready.js";
import { onThemeChange } from "./theme.js";
import { toCommon, toRecorded } from "./timeline_clock.js";
import { TimelineDetails } from "./timeline_details.js";
import { CanvasPainter, LANE, RULER, drawLanes, drawRuler, lostText, palette } from "./timeline_draw.js";
import { exportPng, exportSvg } from "./timeline_export.js";
import { actOn } from "./timeline_keys.js";
import { drawOver, marginOf } from "./timeline_over.js";
import { drawTip, followPointer } from "./timeline_pointer.js";
import { Pair } from "./timeline_pair.js";
import { Requests } from "./timeline_requests.js";
import { Rows } from "./timeline_rows.js";
import { TileStore } from "./timeline_tiles.js";
import { absolute, exactNs, formatNs, grouped, relative, slicesText } from "./timeline_time.js";
import { t } from "./texts.js";

const MIN_SPAN = 4; // ns over the whole width: 1 ns is hundreds of pixels
const HELP = t("W and S zoom, A and D pan, arrows walk slices, F fits the selection, slash searches, Enter goes to the next hit, L goes to the longest, N to the next and B to the one before of the same name, R selects the slice and V the window as a range, M sets a mark, P pins the lane, 0 shows everything, Escape clears.");

export function renderTimeline({ model, el: host }) {
  const timeline = new Timeline(model);
  host.replaceChildren(timeline.root);
  return timeline.start();
}

class Timeline {
  constructor(model) {
    this.model = model;
    this.key = model.get("key");
    this.store = new TileStore();
    this.view = { start: 0, span: 1 };
    this.selected = null;
    this.range = null;
    this.search = { text: "", total: null, names: null, marks: [] };
    this.arrows = [];
    this.allArrows = false;
    this.sticky = 0;
    this.requests = new Requests(this);
    // A page that is being left has no kernel any more that could answer.
    window.addEventListener("beforeunload", () => { this.left = true; });
    this.send = (message) => { if (!this.left) model.send(message); };
    this.rows = new Rows(() => this.redraw(), () => this.rest(), (rank) => this.openRank(rank), (rank) => this.cancelRank(rank));
    this.details = new TimelineDetails(this);
    this.pair = new Pair(this);
    this.build();
  }

  build() {
    const help = freshId("help");
    this.sentence = el("p", { class: "pk-sentence" });
    this.notes = el("ul", { class: "pk-notes" });
    this.status = el("div", { class: "pk-status", role: "status" });
    this.ruler = el("canvas", { class: "pk-tl-ruler", "aria-hidden": "true" });
    this.canvas = el("canvas", { class: "pk-tl-canvas", tabindex: "0", role: "application", "aria-label": this.model.get("label"), "aria-describedby": help });
    this.stage = el("div", { class: "pk-tl-stage" }, this.canvas);
    this.scroll = el("div", { class: "pk-tl-scroll" }, this.rows.root, this.stage);
    this.corner = el("div", { class: "pk-tl-corner" });
    this.lost = el("div", { class: "pk-tl-lost", hidden: true });
    this.tip = el("div", { class: "pk-tl-tip", hidden: true });
    this.live = el("p", { class: "pk-tl-live", "aria-live": "polite", role: "status" });
    this.face = el("div", { class: "pk-tl-face" }, this.toolbar(),
      el("div", { class: "pk-tl-box" },
        el("div", { class: "pk-tl-top" }, this.corner, this.ruler), this.lost, this.scroll, this.tip));
    this.main = el("div", { class: "pk-tl-main" }, this.face,
      this.live, el("details", { class: "pk-note pk-tl-keys" }, el("summary", {}, t("Keys")), el("p", { id: help }, HELP)), this.details.root);
    this.root = el("section", { class: "pk pk-panel pk-tl pk-undrawn", "aria-label": this.model.get("label"), "data-panel": this.model.get("name"), "data-lm-suppress-shortcuts": "true" },
      this.sentence, this.notes, this.status, this.main);
    const onKey = (event) => {
      // JupyterLab would take single letters for shortcuts of its own, and so would the timeline that this one is drawn below.
      event.stopPropagation();
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const inField = event.target.matches("input, select, textarea");
      if (event.key === "Escape" && this.rows.root.contains(event.target)) this.canvas.focus(); // past all its buttons
      if (!inField && actOn(this, event)) event.preventDefault();
    };
    for (const part of [this.face, this.root]) part.addEventListener("keydown", onKey);
  }

  toolbar() {
    const button = (label, title, onclick, more = {}) => el("button", { type: "button", class: "pk-button", title, onclick, ...more }, label);
    const quiet = (label, title, onclick) => button(label, title, onclick, { class: "pk-quiet" });
    this.find = el("input", { type: "search", class: "pk-tl-search", placeholder: t("Search names ( / )"), "aria-label": t("Search names, as text or regular expression") });
    this.find.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        this.clear();
        this.canvas.focus();
      }
      if (event.key === "Enter") this.startSearch(this.find.value, event.shiftKey ? -1 : 1);
    });
    this.found = el("span", { class: "pk-tl-found", role: "status" });
    this.filter = el("input", { type: "search", placeholder: t("Filter: rank 0"), "aria-label": t("Filter the units by rank, process or name"),
      oninput: () => {
        this.rows.filter = this.filter.value;
        this.rows.draw();
        this.rest();
      } });
    this.flowButton = button(t("Arrows"), t("Show the links in the window: launch to kernel, the members of a collective, sends"), () => this.toggleArrows(), { "aria-pressed": "false" });
    this.wideButton = button(t("Full window"), t("Fill the window with the timeline, or give it back (X)"), () => this.fillWindow(), { "aria-pressed": "false" });
    this.runs = el("select", { "aria-label": t("Recording"), onchange: () => this.send({ type: "run", path: this.runs.value }) });
    return el("div", { class: "pk-tl-toolbar", role: "toolbar", "aria-label": t("Timeline tools") },
      this.runs, this.pair.choice, this.find, this.found, this.filter,
      el("span", { class: "pk-tl-joined" },
        button("−", t("Zoom out (S)"), () => this.zoom(2), { "aria-label": t("Zoom out") }),
        button("+", t("Zoom in (W)"), () => this.zoom(0.5), { "aria-label": t("Zoom in") }),
        button(t("Reset"), t("Show everything (0)"), () => this.reset())),
      this.flowButton,
      button(t("Mark"), t("Set a mark with a note at the selection (M)"), () => this.details.askMark()),
      this.wideButton,
      el("span", { class: "pk-tl-taken" },
        quiet(t("Link"), t("Copy a link that opens this view"), (event) => this.copyLink(event.currentTarget)),
        quiet("PNG", t("Download the picture, of the selected range if there is one"), () => exportPng(this)),
        quiet("SVG", t("Download the picture as a vector drawing"), () => exportSvg(this)),
        quiet("CSV", t("Download the slices of the selected range, or of the window"), () => this.exportCsv())));
  }

  /** Takes the whole window, with the details docked below, or gives it back. */
  fillWindow(wide = !this.root.classList.contains("pk-tl-wide")) {
    this.root.classList.toggle("pk-tl-wide", wide);
    this.wideButton.setAttribute("aria-pressed", String(wide));
    this.redraw();
  }

  start() {
    begin(this.key);
    requestAnimationFrame(markFirst);
    const listeners = [
      ["change:status", () => this.drawStatus()],
      ["change:setup", () => this.setUp()],
      ["change:pending", () => this.rows.wait(this.model.get("pending"))],
      ["msg:custom", (message, buffers) => this.receive(message, buffers)],
    ];
    for (const [event, listener] of listeners) this.model.on(event, listener);
    this.scroll.addEventListener("scroll", () => this.redraw(), { passive: true });
    this.resize = new ResizeObserver(() => this.redraw());
    this.resize.observe(this.scroll);
    this.stopTheme = onThemeChange(() => {
      this.painters = null;
      this.redraw();
    });
    followPointer(this);
    this.drawStatus();
    this.rows.wait(this.model.get("pending"));
    if (this.model.get("setup").units) this.setUp();
    return () => {
      for (const [event, listener] of listeners) this.model.off(event, listener);
      this.pair.leave();
      this.resize.disconnect();
      this.sight?.disconnect();
      this.stopTheme();
      finish(this.key);
    };
  }

  /** Asks for its recording when somebody sees where it will be. */
  openInSight() {
    this.sight = new IntersectionObserver((entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      this.sight.disconnect();
      if (document.documentElement.dataset.perfkitReady === undefined) setTimeout(() => this.drawStatus(), 200); // what is above it is not drawn yet
      else this.send({ type: "action" });
    });
    this.sight.observe(this.root);
  }

  drawStatus() {
    const status = this.model.get("status");
    this.root.dataset.state = status.state;
    drawState(this.status, status, this.send);
    this.sight?.disconnect();
    if (status.docked) this.openInSight();
    const shown = status.state === "result";
    // What stands below stays where it is until other lanes are there.
    if (status.state !== "loading") this.root.style.minHeight = "";
    else if (this.main.parentNode === this.root) this.root.style.minHeight = `${this.root.offsetHeight}px`;
    for (const box of [this.sentence, this.notes]) box.hidden = !shown;
    if (shown !== (this.main.parentNode === this.root)) this.root[shown ? "append" : "removeChild"](this.main); // lanes of nothing are none
    this.pair.changed();
    if (status.state !== "loading") this.root.classList.remove("pk-undrawn"); // its room is known
    if (status.state === "loading") begin(this.key);
    else if (!shown) finish(this.key);
    else this.redraw();
  }

  setUp() {
    const setup = this.model.get("setup");
    const fresh = this.setup?.base_ns !== setup.base_ns || this.setup?.path !== setup.path;
    this.setup = setup;
    this.base = BigInt(setup.base_ns);
    if (fresh) {
      this.store.clear();
      this.rows.pinned = [];
      this.clear();
      this.requests.clear();
      this.wentTo = null; // the same place of another recording is another place
      // What is judged is first: the steps, where some were recorded.
      const [from, to] = setup.steps.length
        ? [Math.min(...setup.steps.map((step) => step.start)), Math.max(...setup.steps.map((step) => step.end))] : [setup.start, setup.end];
      const span = Math.max((to - from) * 1.02, MIN_SPAN);
      this.view = { start: from - (span - (to - from)) / 2, span };
    }
    this.sentence.replaceChildren(...told(unbroken(setup.sentence)));
    this.notes.replaceChildren(...[...setup.notes, setup.problem].filter(Boolean).map((note) => el("li", {}, told(unbroken(note)))));
    this.lost.hidden = !setup.dropped.length;
    this.lost.textContent = setup.dropped.length ? `${lostText(setup.lost)}: ${setup.dropped.map((part) => `${grouped(part.count)} ${part.what} (${part.file})`).join("; ")}` : "";
    this.runs.hidden = Boolean(setup.link) || setup.picked;
    this.root.classList.toggle("pk-tl-inside", Boolean(setup.link));
    this.runs.replaceChildren(...setup.options.map(([label, path]) => el("option", { value: path, selected: path === setup.path }, label)));
    if (!setup.options.some(([, path]) => path === setup.path)) this.runs.prepend(el("option", { value: setup.path, selected: true }, setup.path));
    const arrived = setup.ranks.filter((rank) => rank.open && rank.rank in this.rows.pending);
    if (arrived.length) this.live.textContent = t("Rank {0} is open", arrived.map((rank) => rank.rank).join(", "));
    this.rows.update(setup);
    this.details.drawMarks();
    this.goTo(setup.goto);
    this.pair.join();
  }

  // What is shown ----------------------------------------------------------

  width() {
    return Math.max(50, this.stage.clientWidth);
  }

  setView(start, span) {
    const whole = this.setup.end - this.setup.start;
    this.view.span = Math.min(Math.max(span, MIN_SPAN), whole * 1.2);
    const low = this.setup.start - this.view.span * 0.5;
    this.show(Math.min(Math.max(start, low), this.setup.end - this.view.span * 0.5), this.view.span);
    this.pair.moved();
  }

  show(start, span) {
    this.view = { start, span };
    this.changedAt ??= performance.now();
    this.redraw();
    this.rest();
  }

  /** Zooms by `factor`; the moment at `x` stays where it is. */
  zoom(factor, x = this.pointer?.x ?? this.anchor()) {
    const { start, span } = this.view;
    const at = start + (span * x) / this.width();
    const wanted = Math.max(span * factor, MIN_SPAN);
    this.setView(at - (wanted * x) / this.width(), wanted);
  }

  /** Where keys zoom to without a pointer: the selected slice if it is in sight, else the middle. */
  anchor() {
    const { start, span } = this.view;
    const [from, to] = this.selected ? this.commonSpan(this.selected) : [1, 0];
    const [first, last] = [Math.max(from, start), Math.min(to, start + span)];
    return this.width() * (first <= last ? ((first + last) / 2 - start) / span : 0.5);
  }

  pan(share) {
    this.setView(this.view.start + this.view.span * share, this.view.span);
  }

  reset() {
    this.setView(this.setup.start - (this.setup.end - this.setup.start) * 0.01, (this.setup.end - this.setup.start) * 1.02);
  }

  /** From when to when a slice is on the clock of all ranks. */
  commonSpan(slice) {
    const clock = this.rows.clockOfUnit(slice.unit);
    return [toCommon(clock, slice.start), toCommon(clock, slice.end)];
  }

  fit() {
    const [start, end] = this.range ? [this.range.start, this.range.end] : this.selected ? this.commonSpan(this.selected) : [this.setup.start, this.setup.end];
    const length = Math.max(end - start, 1);
    this.setView(start - length * 0.1, length * 1.2);
  }

  /** Tells what is shown once nothing has changed for a moment. */
  rest() {
    clearTimeout(this.settled);
    this.settled = setTimeout(() => this.settle(), 250);
  }

  settle() {
    const { start, span } = this.view;
    const { pinned, filter } = this.rows;
    this.send({ type: "view", path: this.setup.path, start: absolute(this.base, start), end: absolute(this.base, start + span), slice: this.sliceKey(), pins: pinned, filter, search: this.search.text });
    const margin = marginOf(this, this.view);
    if (this.search.total) this.send({ type: "hits", start: start - margin, end: start + span + margin, pixels: Math.round(this.width()) });
    if (this.allArrows) this.askArrows();
    this.say();
  }

  /** The view in words, for those who cannot see it. */
  say() {
    const { start, span } = this.view;
    const window = t("From {0}, {1} wide.", exactNs(start - this.setup.start), formatNs(span));
    this.live.textContent = this.selected ? `${window} ${t("Selected: {0}.", this.words(this.selected))}` : window;
  }

  words(slice) {
    const unit = this.rows.units.get(slice.unit);
    const name = slice.count > 1 ? t("{0}, busy {1}", slicesText(slice.count), formatNs(slice.busy)) : slice.name;
    const at = t("at {0}", exactNs(this.commonSpan(slice)[0] - this.setup.start));
    return `${name}, ${exactNs(slice.end - slice.start)}, ${at}, ${t("rank")} ${unit?.rank} ${unit?.label}`;
  }

  goTo(goto) {
    if (!goto || goto.id === this.wentTo) return;
    this.wentTo = goto.id;
    const [start, end] = [relative(this.base, goto.start), relative(this.base, goto.end)];
    if (start !== null && end !== null && end > start) this.setView(start, end - start);
    if (goto.slice || this.setup.link) this.select(goto.slice, { center: goto.slice !== null && start === null });
    if (goto.pins) { // after the slice, which empties a filter that it is outside of
      this.rows.pinned = goto.pins;
      this.rows.filter = this.filter.value = goto.filter;
      this.rows.draw();
    }
    if (goto.search && goto.search !== this.search.text) {
      this.find.value = goto.search;
      this.startSearch(goto.search, 1, start !== null || Boolean(goto.slice));
    }
  }

  sliceKey() {
    if (!this.selected) return null;
    const { unit, lane, start } = this.selected;
    return { unit, lane, start: absolute(this.base, start) };
  }

  // Selecting --------------------------------------------------------------

  select(slice, { center = false, zoom = false } = {}) {
    this.selected = slice;
    this.arrows = this.allArrows ? this.arrows : [];
    if (slice) {
      this.rows.reveal(slice.unit, slice.lane);
      this.filter.value = this.rows.filter;
      if (center) this.bring(slice, zoom);
      this.send({ type: "detail", unit: slice.unit, lane: slice.lane, start: slice.start, end: slice.end, count: slice.count, busy: slice.busy });
    } else {
      this.details.showSlice(null);
    }
    this.say();
    this.redraw();
    this.rest();
  }

  bring(slice, zoom) {
    const [from, to] = this.commonSpan(slice);
    const length = Math.max(to - from, 1);
    let { start, span } = this.view;
    if (zoom && ((length / span) * this.width() < 6 || length > span)) span = Math.max(length * 12, MIN_SPAN);
    if (from < start || to > start + span || span !== this.view.span) start = from + length / 2 - span / 2;
    this.setView(start, span);
    const row = this.rows.rowOf(slice.unit);
    if (!row) return;
    const top = row.y + slice.lane * LANE;
    const { scrollTop, clientHeight } = this.scroll;
    if (top < scrollTop + this.sticky || top + LANE > scrollTop + clientHeight) this.scroll.scrollTop = top - clientHeight / 2;
  }

  selectRange(start, end, units = null) {
    this.pair.ranged(start, end);
    this.takeRange(start, end, units);
  }

  takeRange(start, end, units) {
    this.range = { start: Math.floor(Math.min(start, end)), end: Math.ceil(Math.max(start, end)), units };
    this.send({ type: "select", ...this.range, units: units ?? this.recorded() });
    this.live.textContent = t("Range of {0} selected.", exactNs(this.range.end - this.range.start));
    this.redraw();
  }

  /** The units with a row that hold recorded events, not sums of them. */
  recorded() {
    return [...new Set(this.rows.unitRows().map((row) => row.unit))].filter((unit) => !["overlap", "modules"].includes(this.rows.units.get(unit).process));
  }

  clear() {
    this.selected = null;
    this.range = null;
    this.arrows = [];
    this.search = { text: "", total: null, names: null, marks: [] };
    this.find.value = "";
    this.found.textContent = "";
    this.details.clear();
    if (!this.setup) return;
    this.redraw();
    this.rest();
  }

  /** Searches a text, or goes to its next hit; the first one comes into view unless the view `stays`. */
  startSearch(text, direction = 1, stays = false) {
    if (!text) {
      this.clear();
      return;
    }
    if (text !== this.search.text) {
      this.search = { text, total: null, names: null, marks: [], stays };
      this.rest();
      this.found.textContent = t("searching…");
      this.send({ type: "search", text, at: this.selected?.start ?? this.view.start });
    } else {
      this.next(direction);
    }
  }

  next(direction) {
    if (!this.search.text) return;
    const unit = typeof this.selected?.unit === "number" ? this.selected.unit : -1; // a counter is no hit itself
    this.send({ type: "next", direction, at: this.selected ? this.selected.start : this.view.start, unit });
  }

  walk(mode, direction = 1) {
    const unit = this.selected?.unit ?? this.rows.unitRows()[0]?.unit;
    if (unit === undefined) return;
    const clock = this.rows.clockOfUnit(unit);
    const { lane = 0, start = toRecorded(clock, this.view.start) - 1, end = start, name = "" } = this.selected ?? {};
    this.send({ type: "walk", mode, direction, unit, lane, start, end, name });
  }

  /** The lane above or below the selected one; there the slice that is nearest in time. */
  changeLane(direction) {
    const lanes = this.rows.unitRows().flatMap((row) => Array.from({ length: row.lanes }, (_, lane) => ({ unit: row.unit, lane })));
    const at = lanes.findIndex(({ unit, lane }) => unit === this.selected?.unit && lane === this.selected?.lane);
    const next = lanes[Math.min(Math.max(at + direction, 0), lanes.length - 1)];
    if (!next) return;
    const start = this.selected ? this.commonSpan(this.selected)[0] : this.view.start;
    this.walkTo(next.unit, next.lane, toRecorded(this.rows.clockOfUnit(next.unit), start));
  }

  /** Selects what is nearest to a moment of a lane. */
  walkTo(unit, lane, start) {
    this.send({ type: "walk", mode: "nearest", direction: 1, unit, lane, start, end: start, name: "" });
  }

  // Arrows -----------------------------------------------------------------

  toggleArrows() {
    this.allArrows = !this.allArrows;
    this.flowButton.setAttribute("aria-pressed", String(this.allArrows));
    this.arrows = [];
    this.sayArrows = this.allArrows; // once: later views are told by what is selected in them
    if (this.allArrows) this.askArrows();
    this.redraw();
  }

  askArrows() {
    const margin = marginOf(this, this.view);
    this.send({ type: "flows", start: this.view.start - margin, end: this.view.start + this.view.span + margin });
  }

  openRank(rank) {
    this.live.textContent = t("Reading rank {0}", rank);
    this.send({ type: "open", ranks: [rank] });
    return true;
  }

  cancelRank(rank) {
    this.live.textContent = t("Rank {0} is not waited for", rank);
    this.send({ type: "cancel", rank });
    return true;
  }

  // Messages ---------------------------------------------------------------

  receive(message, buffers) {
    if (message.type === "tiles" || message.type === "counters") {
      this.requests.receive(message, buffers);
    } else if (message.type === "hits") {
      if (message.text !== this.search.text) return;
      this.search = { ...this.search, total: message.total, names: new Set(message.names), marks: message.marks };
      this.found.textContent = message.problem || `${message.total === 1 ? t("1 hit") : t("{0} hits", grouped(message.total))}${message.done ? "" : "…"}`;
      if (message.first && !this.search.stays) this.select(message.first, { center: true, zoom: true });
      this.redraw();
    } else if (message.type === "found") {
      if (message.slice) this.select(message.slice, { center: true, zoom: message.zoom });
      else this.live.textContent = message.text;
    } else if (message.type === "flows") {
      this.arrows = message.arrows;
      if (this.sayArrows) this.live.textContent = message.text;
      this.sayArrows = false;
      this.redraw();
    } else {
      this.details.receive(message);
    }
  }

  /** Asks for the tiles that the view lacks, of the rows in sight. */
  request() {
    if (this.requests.picture) return; // a picture is being made; it asks for itself
    const rows = this.rows.unitRows().filter((row) => {
      const y = row.y - this.topOf(row);
      return y + row.height >= 0 && y <= this.scroll.clientHeight;
    });
    this.requests.ask(this.view, rows, this.width());
  }

  // Drawing ----------------------------------------------------------------

  redraw() {
    if (this.frame || !this.setup) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  draw() {
    if (!this.stage.clientWidth) return;
    const begun = performance.now();
    const width = this.width();
    const height = Math.min(this.rows.height(), this.scroll.clientHeight || 400);
    this.stage.style.height = `${this.rows.height()}px`;
    this.sticky = this.rows.sticky(height);
    this.rows.root.style.setProperty("--pk-pinned", `${this.sticky ? this.scroll.scrollTop : 0}px`);
    this.painters ??= { lanes: new CanvasPainter(this.canvas, palette(this.root)), ruler: new CanvasPainter(this.ruler, palette(this.root)) };
    const { lanes, ruler } = this.painters;
    lanes.begin(width, height);
    const sharp = this.paintLanes(lanes, { view: this.view, rows: this.rows.list, width, height, topOf: (row) => this.topOf(row), range: this.range });
    ruler.begin(width, RULER);
    drawRuler(ruler, { timeline: this, view: this.view, width, height: RULER });
    drawTip(this);
    this.corner.textContent = t("{0} from {1}", formatNs(this.view.span), exactNs(this.view.start - this.setup.start));
    performance.measure("perfkit-frame", { start: begun, end: performance.now() });
    if (sharp) this.sharp();
    this.request();
  }

  /** How far a row is scrolled up: pinned ones stay. */
  topOf(row) {
    return row.pinned && this.sticky ? 0 : this.scroll.scrollTop;
  }

  sharp() {
    if (!this.wasSharp) performance.mark("perfkit-picture");
    this.wasSharp = true;
    if (this.changedAt !== undefined) performance.measure("perfkit-sharp", { start: this.changedAt, end: performance.now() });
    this.changedAt = undefined;
    finish(this.key);
  }

  /** Paints rows of a view and what lies over them; whether all of it was there at full sharpness. */
  paintLanes(painter, { view, rows, width, height, topOf, range = null }) {
    const { store, selected, setup } = this;
    const shared = { view, store, width, height, topOf, range, end: setup.end, selected, highlight: this.highlighted(),
      refused: (unit, tileWidth, index) => this.requests.isRefused(unit, tileWidth, index) };
    const pinned = !this.sticky ? [] : rows.filter((row) => row.pinned);
    let sharp = drawLanes(painter, { ...shared, rows: rows.filter((row) => !pinned.includes(row)) });
    if (pinned.length) {
      painter.rect(0, 0, width, this.sticky, painter.colors.surface);
      sharp = drawLanes(painter, { ...shared, rows: pinned }) && sharp;
      painter.rect(0, this.sticky - 1, width, 1, painter.colors.muted);
    }
    drawOver(painter, { ...shared, rows: rows.filter((row) => row.pinned || !pinned.length || row.y - topOf(row) + row.height > this.sticky), timeline: this });
    return sharp;
  }

  highlighted() {
    if (!this.search.names) return null;
    const { names } = this.search;
    return new Set([...names].map((name) => this.store.nameIds.get(name)).filter((id) => id !== undefined));
  }

  // Exports ----------------------------------------------------------------

  async copyLink(button) {
    this.settle();
    await new Promise((resolve) => setTimeout(resolve, 200)); // the kernel writes the address
    await navigator.clipboard.writeText(this.setup.link ? this.linked() : location.href);
    button.textContent = t("Copied");
    setTimeout(() => (button.textContent = t("Link")), 1500);
  }

  /** The address of the page of timelines with this view. */
  linked() {
    const { start, span } = this.view;
    const place = { run: this.setup.path, from: absolute(this.base, start), to: absolute(this.base, start + span) };
    return new URL(`${this.setup.link}#${new URLSearchParams(place)}`, location.href).href;
  }

  exportCsv() {
    const { start, end, units } = this.range ?? { start: this.view.start, end: this.view.start + this.view.span, units: null };
    this.send({ type: "csv", start: Math.floor(start), end: Math.ceil(end), units: units ?? this.recorded() });
  }
}
