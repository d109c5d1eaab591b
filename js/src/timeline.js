// The timeline: toolbar, unit tree, lanes on a canvas, details. The kernel serves tiles; only what is looked at is held here.
import { download, el, freshId } from "./dom.js";
import { states } from "./panel.js";
import { begin, finish } from "./ready.js";
import { onThemeChange } from "./theme.js";
import { TimelineDetails } from "./timeline_details.js";
import { CanvasPainter, LANE, SvgPainter, drawLanes, drawRuler, palette } from "./timeline_draw.js";
import { drawOver } from "./timeline_over.js";
import { actOn } from "./timeline_keys.js";
import { followPointer } from "./timeline_pointer.js";
import { Rows } from "./timeline_rows.js";
import { TileStore, tileNs, widthFor } from "./timeline_tiles.js";
import { absolute, exactNs, formatNs, relative, slicesText } from "./timeline_time.js";
import { t } from "./texts.js";

const RULER = 40;
const MIN_SPAN = 4; // ns over the whole width: 1 ns is hundreds of pixels
const MAX_UNITS = 48; // of one request, so that the first picture comes soon
const HELP = "W and S zoom, A and D pan, arrows walk slices, F fits the selection, slash searches, Enter goes to the next hit, "
  + "L goes to the longest and N to the next of the same name, M sets a mark, P pins the lane, 0 shows everything, Escape clears.";

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
    this.seq = 0;
    this.waiting = null;
    // A page that is being left has no kernel any more that could answer.
    window.addEventListener("beforeunload", () => { this.left = true; });
    this.send = (message) => { if (!this.left) model.send(message); };
    this.rows = new Rows(() => this.redraw(), (rank) => this.openRank(rank));
    this.details = new TimelineDetails(this);
    this.build();
  }

  build() {
    const help = freshId("help");
    this.sentence = el("p", { class: "pk-sentence" });
    this.notes = el("ul", { class: "pk-notes" });
    this.status = el("div", { class: "pk-status", role: "status" });
    this.ruler = el("canvas", { class: "pk-tl-ruler", "aria-hidden": "true" });
    this.canvas = el("canvas", { class: "pk-tl-canvas", tabindex: "0", role: "application", "aria-label": "Timeline", "aria-describedby": help });
    this.stage = el("div", { class: "pk-tl-stage" }, this.canvas);
    this.scroll = el("div", { class: "pk-tl-scroll" }, this.rows.root, this.stage);
    this.corner = el("div", { class: "pk-tl-corner" });
    this.lost = el("div", { class: "pk-tl-lost", hidden: true });
    this.tip = el("div", { class: "pk-tl-tip", hidden: true });
    this.live = el("p", { class: "pk-tl-live", "aria-live": "polite", role: "status" });
    this.main = el("div", { class: "pk-tl-main" }, this.toolbar(),
      el("div", { class: "pk-tl-box" },
        el("div", { class: "pk-tl-top" }, this.corner, this.ruler), this.lost, this.scroll, this.tip),
      this.live, el("p", { class: "pk-note", id: help }, HELP), this.details.root);
    this.root = el("section", { class: "pk pk-panel pk-tl", "aria-label": t("Timeline"), "data-panel": this.model.get("name"), "data-lm-suppress-shortcuts": "true" },
      this.sentence, this.notes, this.status, this.main);
    this.root.addEventListener("keydown", (event) => {
      // JupyterLab would take single letters for shortcuts of its own.
      event.stopPropagation();
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const inField = event.target.matches("input, select, textarea");
      if (!inField && actOn(this, event)) event.preventDefault();
    });
  }

  toolbar() {
    const button = (label, title, onclick, more = {}) => el("button", { type: "button", class: "pk-button", title, onclick, ...more }, label);
    this.find = el("input", { type: "search", class: "pk-tl-search", placeholder: t("Search names ( / )"), "aria-label": t("Search names, as text or regular expression") });
    this.find.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        this.clear();
        this.canvas.focus();
      }
      if (event.key === "Enter") this.startSearch(this.find.value, event.shiftKey ? -1 : 1);
    });
    this.found = el("span", { class: "pk-tl-found", role: "status" });
    this.filter = el("input", { type: "search", placeholder: t("Filter: rank 0 device"), "aria-label": t("Filter the units by rank, process or name"),
      oninput: () => {
        this.rows.filter = this.filter.value;
        this.rows.draw();
      } });
    this.flowButton = button(t("Arrows"), t("Show the links in the window: launch to kernel, the members of a collective, sends"), () => this.toggleArrows(), { "aria-pressed": "false" });
    this.runs = el("select", { "aria-label": t("Recording"), onchange: () => this.send({ type: "run", path: this.runs.value }) });
    return el("div", { class: "pk-tl-toolbar", role: "toolbar", "aria-label": t("Timeline tools") },
      this.runs, this.find, this.found, this.filter, this.flowButton,
      button(t("Mark"), t("Set a mark with a note at the selection (M)"), () => this.details.askMark()),
      button("−", t("Zoom out (S)"), () => this.zoom(2), { "aria-label": t("Zoom out") }),
      button("+", t("Zoom in (W)"), () => this.zoom(0.5), { "aria-label": t("Zoom in") }),
      button(t("Reset"), t("Show everything (0)"), () => this.reset()),
      button(t("Link"), t("Copy a link that opens this view"), (event) => this.copyLink(event.currentTarget)),
      button("PNG", t("Download the picture"), () => this.exportPng()),
      button("SVG", t("Download the picture as a vector drawing"), () => this.exportSvg()));
  }

  start() {
    begin(this.key);
    const listeners = [
      ["change:status", () => this.drawStatus()],
      ["change:setup", () => this.setUp()],
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
    if (this.model.get("setup").units) this.setUp();
    return () => {
      for (const [event, listener] of listeners) this.model.off(event, listener);
      this.resize.disconnect();
      this.stopTheme();
      finish(this.key);
    };
  }

  drawStatus() {
    const status = this.model.get("status");
    const draw = states[status.state];
    this.root.dataset.state = status.state;
    this.status.replaceChildren(...(draw ? draw(status, this.send) : []));
    this.status.hidden = !draw;
    const shown = status.state === "result";
    for (const box of [this.main, this.sentence, this.notes]) box.hidden = !shown;
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
      this.waiting = null;
      this.view = { start: setup.start, span: (setup.end - setup.start) * 1.02 };
    }
    this.sentence.textContent = setup.sentence;
    this.notes.replaceChildren(...[...setup.notes, setup.problem].filter(Boolean).map((note) => el("li", {}, note)));
    const lost = setup.dropped.reduce((sum, part) => sum + part.count, 0);
    this.lost.hidden = !lost;
    this.lost.textContent = lost ? `${slicesText(lost).replace("slices", "items")} lost: ${setup.dropped.map((part) => `${part.count} ${part.what} (${part.file})`).join("; ")}` : "";
    this.runs.replaceChildren(...setup.options.map(([label, path]) => el("option", { value: path, selected: path === setup.path }, label)));
    if (!setup.options.some(([, path]) => path === setup.path)) this.runs.prepend(el("option", { value: setup.path, selected: true }, setup.path));
    this.rows.update(setup);
    this.details.drawMarks();
    this.goTo(setup.goto);
  }

  // What is shown ----------------------------------------------------------

  width() {
    return Math.max(50, this.stage.clientWidth);
  }

  setView(start, span) {
    const whole = this.setup.end - this.setup.start;
    this.view.span = Math.min(Math.max(span, MIN_SPAN), whole * 1.2);
    const low = this.setup.start - this.view.span * 0.5;
    this.view.start = Math.min(Math.max(start, low), this.setup.end - this.view.span * 0.5);
    this.changedAt ??= performance.now();
    this.redraw();
    clearTimeout(this.settled);
    this.settled = setTimeout(() => this.settle(), 250);
  }

  /** Zooms by `factor`; the moment at `x` stays where it is. */
  zoom(factor, x = this.pointer?.x ?? this.width() / 2) {
    const { start, span } = this.view;
    const at = start + (span * x) / this.width();
    const wanted = Math.max(span * factor, MIN_SPAN);
    this.setView(at - (wanted * x) / this.width(), wanted);
  }

  pan(share) {
    this.setView(this.view.start + this.view.span * share, this.view.span);
  }

  reset() {
    this.setView(this.setup.start - (this.setup.end - this.setup.start) * 0.01, (this.setup.end - this.setup.start) * 1.02);
  }

  fit() {
    const { start, end } = this.range ?? this.selected ?? this.setup;
    const length = Math.max(end - start, 1);
    this.setView(start - length * 0.1, length * 1.2);
  }

  settle() {
    const { start, span } = this.view;
    this.send({ type: "view", start: absolute(this.base, start), end: absolute(this.base, start + span), slice: this.sliceKey() });
    if (this.search.total) this.send({ type: "hits", start, end: start + span, pixels: Math.round(this.width()) });
    if (this.allArrows) this.askArrows();
    this.say();
  }

  /** The view in words, for those who cannot see it. */
  say() {
    const { start, span } = this.view;
    const window = `From ${exactNs(start - this.setup.start)}, ${formatNs(span)} wide`;
    this.live.textContent = this.selected ? `${window}. Selected: ${this.words(this.selected)}.` : `${window}.`;
  }

  words(slice) {
    const unit = this.rows.units.get(slice.unit);
    const name = slice.count > 1 ? `${slicesText(slice.count)}, ${formatNs(slice.busy)} busy` : slice.name;
    return `${name}, ${exactNs(slice.end - slice.start)}, at ${exactNs(slice.start - this.setup.start)}, rank ${unit?.rank} ${unit?.label}`;
  }

  goTo(goto) {
    if (!goto || goto.id === this.wentTo) return;
    this.wentTo = goto.id;
    const [start, end] = [relative(this.base, goto.start), relative(this.base, goto.end)];
    if (start !== null && end !== null && end > start) this.setView(start, end - start);
    if (goto.slice) this.select(goto.slice);
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
      if (center) this.bring(slice, zoom);
      this.send({ type: "detail", unit: slice.unit, lane: slice.lane, start: slice.start, end: slice.end, count: slice.count, busy: slice.busy });
    } else {
      this.details.showSlice(null);
    }
    this.say();
    this.redraw();
    clearTimeout(this.settled);
    this.settled = setTimeout(() => this.settle(), 250);
  }

  bring(slice, zoom) {
    const length = Math.max(slice.end - slice.start, 1);
    let { start, span } = this.view;
    if (zoom && ((length / span) * this.width() < 6 || length > span)) span = Math.max(length * 12, MIN_SPAN);
    if (slice.start < start || slice.end > start + span || span !== this.view.span) start = slice.start + length / 2 - span / 2;
    this.setView(start, span);
    const row = this.rows.rowOf(slice.unit);
    if (!row) return;
    const top = row.y + slice.lane * LANE;
    if (top < this.scroll.scrollTop || top + LANE > this.scroll.scrollTop + this.scroll.clientHeight) this.scroll.scrollTop = top - this.scroll.clientHeight / 2;
  }

  selectRange(start, end, units = null) {
    this.range = { start: Math.floor(Math.min(start, end)), end: Math.ceil(Math.max(start, end)), units };
    this.send({ type: "select", ...this.range, units: units ?? this.recorded() });
    this.live.textContent = `Range of ${exactNs(this.range.end - this.range.start)} selected.`;
    this.redraw();
  }

  /** The units with a row that hold recorded events, not sums of them. */
  recorded() {
    return [...new Set(this.rows.unitRows().map((row) => row.unit))].filter((unit) => this.rows.units.get(unit).process !== "overlap");
  }

  clear() {
    this.selected = null;
    this.range = null;
    this.arrows = [];
    this.search = { text: "", total: null, names: null, marks: [] };
    this.find.value = "";
    this.found.textContent = "";
    this.details.clear();
    if (this.setup) this.redraw();
  }

  startSearch(text, direction = 1) {
    if (!text) {
      this.clear();
      return;
    }
    if (text !== this.search.text) {
      this.search = { text, total: null, names: null, marks: [] };
      this.found.textContent = "searching…";
      this.send({ type: "search", text, at: this.selected?.start ?? this.view.start });
    } else {
      this.next(direction);
    }
  }

  next(direction) {
    if (!this.search.text) return;
    this.send({ type: "next", direction, at: this.selected ? this.selected.start : this.view.start, unit: this.selected?.unit ?? -1 });
  }

  walk(mode, direction = 1) {
    const unit = this.selected?.unit ?? this.rows.unitRows()[0]?.unit;
    if (unit === undefined) return;
    const { lane = 0, start = this.view.start - 1, end = this.view.start, name = "" } = this.selected ?? {};
    this.send({ type: "walk", mode, direction, unit, lane, start, end, name });
  }

  /** The lane above or below the selected one; there the slice that is nearest in time. */
  changeLane(direction) {
    const lanes = this.rows.unitRows().flatMap((row) => Array.from({ length: row.lanes }, (_, lane) => ({ unit: row.unit, lane })));
    const at = lanes.findIndex(({ unit, lane }) => unit === this.selected?.unit && lane === this.selected?.lane);
    const next = lanes[Math.min(Math.max(at + direction, 0), lanes.length - 1)];
    if (!next) return;
    const start = this.selected?.start ?? this.view.start;
    this.send({ type: "walk", mode: "nearest", direction: 1, ...next, start, end: start, name: "" });
  }

  // Arrows -----------------------------------------------------------------

  toggleArrows() {
    this.allArrows = !this.allArrows;
    this.flowButton.setAttribute("aria-pressed", String(this.allArrows));
    this.arrows = [];
    if (this.allArrows) this.askArrows();
    this.redraw();
  }

  askArrows() {
    this.send({ type: "flows", start: this.view.start, end: this.view.start + this.view.span });
  }

  openRank(rank) {
    this.send({ type: "open", ranks: [rank] });
    return true;
  }

  // Messages ---------------------------------------------------------------

  receive(message, buffers) {
    if (message.type === "tiles") {
      if (this.waiting?.seq !== message.seq) return;
      this.waiting = null;
      if (message.problem) this.live.textContent = message.problem;
      else this.store.add(message, buffers, this.base);
      this.redraw();
    } else if (message.type === "hits") {
      if (message.text !== this.search.text) return;
      this.search = { ...this.search, total: message.total, names: new Set(message.names), marks: message.marks };
      this.found.textContent = message.problem || `${slicesText(message.total).replace("slices", message.total === 1 ? "hit" : "hits")}${message.done ? "" : "…"}`;
      if (message.first) this.select(message.first, { center: true, zoom: true });
      this.redraw();
    } else if (message.type === "found") {
      if (message.slice) this.select(message.slice, { center: true, zoom: message.zoom });
      else this.live.textContent = message.text;
    } else if (message.type === "flows") {
      this.arrows = message.arrows;
      if (message.text) this.live.textContent = message.text;
      this.redraw();
    } else {
      this.details.receive(message);
    }
  }

  /** Asks for the tiles that the view lacks; one request at a time, so that none is answered that nobody needs any more. */
  request() {
    if (this.waiting) return;
    const width = widthFor(this.view.span / this.width());
    const size = tileNs(width);
    const first = Math.floor(this.view.start / size);
    const last = Math.floor((this.view.start + this.view.span) / size);
    const top = this.scroll.scrollTop;
    const rows = this.rows.unitRows().filter((row) => row.y + row.height >= top && row.y <= top + this.scroll.clientHeight);
    const need = (from, to) => [...new Set(rows.map((row) => row.unit))].filter((unit) => {
      for (let index = from; index <= to; index += 1) if (!this.store.has(unit, width, index)) return true;
      return false;
    });
    for (const [from, to] of [[first, last], [first - 1, last + 1]]) {
      const units = need(from, to).slice(0, MAX_UNITS);
      if (!units.length) continue;
      this.seq += 1;
      this.waiting = { seq: this.seq };
      this.send({ type: "tiles", seq: this.seq, width, first: from, last: to, units });
      return;
    }
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
    if (this.main.hidden || !this.stage.clientWidth) return;
    const begun = performance.now();
    const width = this.width();
    const height = Math.min(this.rows.height(), this.scroll.clientHeight || 400);
    this.stage.style.height = `${this.rows.height()}px`;
    this.painters ??= { lanes: new CanvasPainter(this.canvas, palette(this.root)), ruler: new CanvasPainter(this.ruler, palette(this.root)) };
    const { lanes, ruler } = this.painters;
    lanes.begin(width, height);
    const sharp = this.paintLanes(lanes, width, this.scroll.scrollTop, height);
    ruler.begin(width, RULER);
    this.paintRuler(ruler, width);
    this.corner.textContent = `${formatNs(this.view.span)} from ${exactNs(this.view.start - this.setup.start)}`;
    performance.measure("perfkit-frame", { start: begun, end: performance.now() });
    if (sharp) this.sharp();
    this.request();
  }

  sharp() {
    if (!this.wasSharp) performance.mark("perfkit-picture");
    this.wasSharp = true;
    if (this.changedAt !== undefined) performance.measure("perfkit-sharp", { start: this.changedAt, end: performance.now() });
    this.changedAt = undefined;
    finish(this.key);
  }

  paintLanes(painter, width, top, height) {
    const { rows, view, store } = this;
    const shared = { rows: rows.list, view, store, width, top, height, colors: painter.colors, highlight: this.highlighted() };
    const sharp = drawLanes(painter, shared);
    drawOver(painter, { ...shared, timeline: this });
    return sharp;
  }

  paintRuler(painter, width) {
    const { setup } = this;
    drawRuler(painter, { view: this.view, width, height: RULER, origin: setup.start, steps: setup.steps, colors: painter.colors });
    const scale = width / this.view.span;
    for (const mark of setup.marks ?? []) painter.text((mark.start - this.view.start) * scale + 2, 27, `⚑ ${mark.note.slice(0, 40)}`, painter.colors.accent);
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
    await navigator.clipboard.writeText(location.href);
    button.textContent = t("Copied");
    setTimeout(() => (button.textContent = t("Link")), 1500);
  }

  exportPng() {
    const [tree, width] = [220, this.width()];
    const height = this.rows.height() + RULER;
    const painter = new CanvasPainter(document.createElement("canvas"), palette(this.root));
    painter.begin(width + tree, height);
    painter.rect(0, 0, width + tree, height, painter.colors.surface);
    this.paintAll({ painter, tree, width, move: (x, y, draw) => {
      painter.context.save();
      painter.context.translate(x, y);
      painter.context.beginPath();
      painter.context.rect(0, 0, width + tree, height);
      painter.context.clip();
      draw();
      painter.context.restore();
      painter.fill = null;
      painter.alpha = -1;
    } });
    painter.canvas.toBlob((blob) => download("timeline.png", blob, "image/png"));
  }

  exportSvg() {
    const [tree, width] = [220, this.width()];
    const painter = new SvgPainter(palette(this.root));
    this.paintAll({ painter, tree, width, move: (x, y, draw) => painter.move(x, y, draw) });
    download("timeline.svg", painter.finish(width + tree, this.rows.height() + RULER), "image/svg+xml");
  }

  paintAll({ painter, tree, width, move }) {
    move(tree, RULER, () => this.paintLanes(painter, width, 0, this.rows.height()));
    move(tree, 0, () => this.paintRuler(painter, width));
    move(0, RULER, () => {
      for (const row of this.rows.list) painter.text(6, row.y + Math.min(row.height, 24) / 2, row.node.textContent.slice(0, 34), painter.colors.text);
    });
  }
}
