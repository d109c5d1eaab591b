// A panel: answer sentence, charts, controls, tables, and the six states that it can be in.
//
// An answer comes in two halves: `data` (charts and sentence), drawn at once, and `details` of the same version (controls, notes,
// tables, code), drawn once the charts are on the screen. The second half of an answer that is outdated by then never comes.
import { Chart } from "./chart.js";
import { makeControl } from "./controls.js";
import { afterFrame, el, markFirst, replaceIfOther, told, unbroken } from "./dom.js";
import { begin, finish } from "./ready.js";
import { Table } from "./table.js";
import { t } from "./texts.js";

// Controls by the room that they take, of which a choice of a file or of several values takes two: so few are a line over what they are
// of, so many a column beside it, and more stand below it.
const LINE = 2;
const BESIDE = 6;
const ONE_LINE = new Set(["choose-run", "choose-config", "choose-log", "choose-graph", "choose-path"]); // what a page opens with
const SIDES = new Set(["choose-a", "choose-b", "choose-reference", "choose-candidate", "choose-plan"]); // beside another one: a line with its name
const ONE_LINE_STATES = new Set(["result", "empty"]);
const MARKED = /^[✓✗]/; // a note that begins with its own mark has no dash before it
const STALE_AFTER_MS = 150; // answers that come sooner replace the figure without a flicker

export function renderPanel({ model, el: host }) {
  const panel = new Panel(model);
  host.replaceChildren(panel.root);
  return panel.start();
}

/** Of panels in a row that wait for the same thing the first alone says so. */
function sayOnce() {
  const said = (panel) => (panel?.classList.contains("pk-waits") ? panel.querySelector(".pk-status").textContent : null);
  [...document.querySelectorAll(".pk-panel")].forEach((panel, at, all) => {
    panel.classList.toggle("pk-waits-too", said(panel) !== null && said(panel) === said(all[at - 1]));
  });
}

class Panel {
  constructor(model) {
    this.model = model;
    this.charts = new Map();
    this.tables = new Map();
    this.controls = new Map();
    this.seq = 0;
    this.outstanding = null;
    this.wanted = null;
    this.key = model.get("key");
    this.send = (message, parts) => model.send(message, undefined, parts);
    this.status = el("div", { class: "pk-status", role: "status" });
    this.sentence = el("p", { class: "pk-sentence", "aria-live": "polite" });
    this.notes = el("ul", { class: "pk-notes", hidden: true });
    this.figures = el("div", { class: "pk-figures" });
    this.controlBox = el("div", { class: "pk-controls" });
    this.undo = el("button", { type: "button", class: "pk-quiet pk-undo", hidden: true, onclick: () => this.send({ type: "undo" }) }, t("Undo last change"));
    this.actionBox = el("div", { class: "pk-actions", hidden: true });
    this.outcome = el("div", { class: "pk-outcome", role: "status", hidden: true });
    this.codeBox = el("div", { class: "pk-code-blocks" });
    this.tableBox = el("div", { class: "pk-tables" });
    this.main = el("div", { class: "pk-main" }, this.figures, this.controlBox);
    this.pair = el("div", { class: "pk-pair" });
    this.shut = model.get("folded") && new URLSearchParams(location.hash.slice(1)).get("at") !== model.get("name"); // a link to it opens it
    this.opener = el("button", { type: "button", class: "pk-fold", hidden: !model.get("folded"), "aria-expanded": String(!this.shut), onclick: () => this.turn() }, t("Details"));
    // Shown by the style sheet only where a page has several panels; one alone is named by the page.
    this.heading = el("h2", { class: "pk-title" }, model.get("title"));
    this.root = el("section", { class: "pk pk-panel pk-undrawn", "aria-label": model.get("title") || "panel", "data-panel": model.get("name") },
      this.heading, this.status, this.sentence, this.opener, ...this.below());
    this.root.classList.toggle("pk-shut", this.shut);
    // JupyterLab binds bare letters and arrows, and asks the focused element itself whether it may.
    this.root.addEventListener("focusin", (event) => event.target.setAttribute("data-lm-suppress-shortcuts", "true"));
  }

  /** What stands below the sentence, in its order. */
  below() {
    return [this.main, this.notes, this.codeBox, this.actionBox, this.outcome, this.tableBox];
  }

  start() {
    begin(this.key);
    requestAnimationFrame(() => {
      markFirst();
      sayOnce();
    });
    const listeners = [
      ["change:controls", () => this.drawSoon()],
      ["change:actions", () => this.drawSoon()],
      ["change:details", () => this.drawSoon()],
      ["change:outcome", () => this.drawOutcome()],
      ["change:status", () => this.drawStatus()],
      ["change:frame", () => this.drawFrame()],
      ["change:data", () => {
        this.arrivedAt = performance.now();
        this.drawData();
      }],
      ["msg:custom", (message) => message.type === "upload" && this.controls.get(message.name)?.receive?.(message)],
    ];
    for (const [event, listener] of listeners) this.model.on(event, listener);
    if (SIDES.has(this.model.get("name"))) this.beShort();
    this.drawFrame();
    this.drawControls();
    this.drawActions();
    this.drawDetails();
    const often = this.model.get("refresh_s");
    const timer = often ? setInterval(() => this.refresh(), 1000 * often) : 0;
    return () => {
      clearInterval(timer);
      for (const [event, listener] of listeners) this.model.off(event, listener);
      for (const chart of this.charts.values()) chart.destroy();
      clearTimeout(this.staleTimer);
      clearTimeout(this.lateTimer);
      finish(this.key);
    };
  }

  /** Opens a folded panel, or shuts it again; its charts are drawn when it is opened first. */
  turn() {
    this.shut = !this.shut;
    this.root.classList.toggle("pk-shut", this.shut);
    this.opener.setAttribute("aria-expanded", String(!this.shut));
    if (!this.shut) this.drawFrame();
    this.beOneLine();
  }

  /** A sentence, a line that opens, or a button with what it does: with no more it stands in the line of its question. */
  beOneLine() {
    const seen = [this.figures, this.controlBox, this.tableBox, this.codeBox, this.notes].filter((box) => !box.hidden).flatMap((box) => [...box.children]);
    const more = seen.some((one) => !one.hidden && !one.matches(".pk-table.pk-shut, .pk-code-folded"));
    this.root.classList.toggle("pk-line", ONE_LINE_STATES.has(this.model.get("status").state) && (this.shut || !more));
  }

  /** A picker of one control, once it is known that it has no more, is a line where the bar switches what is open. */
  beShortIfAlone(specs) {
    this.isAlone = specs.filter((spec) => !spec.hidden).length < 2;
    if (this.isAlone && ONE_LINE.has(this.model.get("name")) && document.getElementById("bar-open")) this.beShort();
  }

  /** One line that says what is open; the ways to another one come on demand, those of what the bar switches are there, too. */
  beShort() {
    const more = el("button", { type: "button", class: "pk-quiet pk-other", "aria-expanded": "false", onclick: () => {
      const open = this.root.classList.toggle("pk-picked") === false;
      more.setAttribute("aria-expanded", String(open));
    } }, t("Choose another"));
    this.root.classList.add("pk-picked");
    this.sentence.after(more);
    if (SIDES.has(this.model.get("name"))) this.sentence.before(el("span", { class: "pk-side" }, this.model.get("title")));
  }

  // Controls ---------------------------------------------------------------

  drawControls() {
    const specs = this.model.get("controls");
    if (specs.length && this.isAlone === undefined) this.beShortIfAlone(specs);
    const names = specs.map((spec) => spec.name);
    this.controlBox.hidden = specs.every((spec) => spec.hidden);
    if (names.join("\n") !== [...this.controls.keys()].join("\n")) {
      this.controls = new Map(specs.map((spec) => [spec.name, makeControl(spec, (value) => this.onValue(spec.name, value), this.send)]));
      this.controlBox.replaceChildren(...[...this.controls.values()].map((control) => control.root), this.undo);
    }
    const shown = specs.filter((spec) => !spec.hidden);
    const room = shown.reduce((sum, spec) => sum + (spec.kind === "path" || spec.multiple ? 2 : 1), 0);
    this.main.classList.toggle("pk-below", room > BESIDE);
    this.controlBox.style.setProperty("--pk-room", room);
    this.main.classList.toggle("pk-one", room <= LINE && shown.every((spec) => spec.kind !== "path" && !spec.multiple));
    // A picker that is one line shows its field while what was asked of it is refused there.
    this.root.classList.toggle("pk-refused", specs.some((spec) => spec.note));
    this.undo.hidden = !this.model.get("can_undo");
    for (const spec of specs) {
      // A value that the visitor is still changing is newer than the kernel's.
      if (this.wanted && spec.name in this.wanted) continue;
      if (this.outstanding && spec.name in this.outstanding.values) continue;
      this.controls.get(spec.name).update(spec.value, spec.note, spec);
    }
  }

  drawActions() {
    const actions = this.model.get("actions");
    this.actionBox.hidden = actions.length === 0;
    replaceIfOther(this.actionBox, actions, (action) => el("button", {
      type: "button", class: "pk-button pk-primary", title: action.help, "data-action": action.name,
      // Values that wait for an answer to earlier ones go along, so that the button acts on what stands in the fields.
      onclick: () => this.send({ type: "act", name: action.name, values: { ...this.wanted } }),
    }, action.label));
  }

  drawOutcome() {
    const { text, problems = [] } = this.model.get("outcome");
    this.outcome.hidden = !text;
    this.outcome.classList.toggle("pk-failed", problems.length > 0);
    this.outcome.replaceChildren(el("p", {}, text ?? ""), ...(problems.length ? [el("ul", {}, ...problems.map((problem) => el("li", {}, problem)))] : []));
  }

  onValue(name, value) {
    this.wanted = { ...this.wanted, [name]: value };
    this.changedAt ??= performance.now();
    this.flush();
  }

  // One request at a time: while the kernel computes, only the newest values are kept.
  flush() {
    if (this.outstanding || !this.wanted) return;
    this.seq += 1;
    this.outstanding = { seq: this.seq, values: this.wanted, at: this.changedAt };
    this.wanted = null;
    this.changedAt = undefined;
    this.send({ type: "set", seq: this.seq, values: this.outstanding.values });
    clearTimeout(this.staleTimer);
    this.staleTimer = setTimeout(() => this.setStale(true), STALE_AFTER_MS);
  }

  answered(seq) {
    if (!this.outstanding || seq < this.outstanding.seq) return;
    const { at } = this.outstanding;
    this.outstanding = null;
    clearTimeout(this.staleTimer);
    this.setStale(false);
    performance.measure("perfkit-answer", { start: at, end: this.arrivedAt });
    this.shown.then(() => performance.measure("perfkit-redraw", { start: at, end: performance.now() }));
    this.flush();
  }

  // Not while somebody types, or looks at another tab.
  refresh() {
    const typing = this.controlBox.contains(document.activeElement);
    if (this.model.get("status").state === "result" && !document.hidden && !this.outstanding && !typing) this.send({ type: "retry" });
  }

  setStale(stale) {
    this.root.classList.toggle("pk-stale", stale);
    this.root.setAttribute("aria-busy", String(stale));
  }

  // States -----------------------------------------------------------------

  drawStatus() {
    const status = this.model.get("status");
    if (status === this.statusDrawn) return this.settle();
    this.statusDrawn = status;
    this.root.dataset.state = status.state;
    this.root.classList.toggle("pk-waits", Boolean(status.waits));
    drawState(this.status, status, this.send);
    sayOnce();
    const again = status.state === "loading" && Boolean(status.again);
    this.root.classList.toggle("pk-again", again);
    const shown = status.state === "result" || again;
    for (const box of [this.sentence, this.figures, this.codeBox, this.tableBox]) box.hidden = !shown;
    this.notes.hidden = !shown || this.notes.children.length === 0;
    if (status.state === "loading") begin(this.key);
    else this.settle();
    if (status.state === "result" || status.state === "loading") return;
    this.arrivedAt = performance.now();
    this.answered(status.seq);
    this.drawSoon();
  }

  // First half of an answer --------------------------------------------------

  drawFrame() {
    this.arrivedAt = performance.now();
    const charts = this.shut && this.charts.size === 0 ? [] : (this.model.get("frame").charts ?? []);
    for (const [name, chart] of this.charts) {
      if (charts.some((description) => description.name === name)) continue;
      chart.destroy();
      this.charts.delete(name);
    }
    this.drawPair(this.model.get("frame").beside_ch ?? 0);
    const fresh = [];
    for (const description of charts) {
      const known = this.charts.get(description.name);
      const chart = known ?? new Chart(this.model, this.send);
      this.charts.set(description.name, chart);
      if (known?.description.digest === description.digest) {
        chart.describe(description);
      } else {
        if (chart.root.classList.contains("pk-wide") !== (description.wide === true)) chart.moved();
        chart.root.classList.toggle("pk-wide", description.wide === true);
        fresh.push([chart, description]);
      }
    }
    const roots = charts.map((description) => this.charts.get(description.name).root);
    if (roots.length !== this.figures.children.length || roots.some((root, at) => this.figures.children[at] !== root)) {
      this.figures.replaceChildren(...roots);
    }
    const data = this.model.get("data");
    for (const [chart, description] of fresh) {
      chart.rebuild(description, data.datasets?.[description.name] ?? {}, data.params?.[description.name] ?? {});
      chart.version = data.version;
    }
    this.drawData();
  }

  /** A table for which there is room stands to the right of all that comes before it. */
  drawPair(room) {
    this.pair.style.setProperty("--pk-beside", `${room}ch`);
    const paired = this.pair.parentNode === this.root; // also of a panel that is not on the page yet
    if (paired === room > 0) return;
    const below = this.below();
    const focused = document.activeElement;
    if (room) this.pair.replaceChildren(el("div", { class: "pk-left" }, ...below.slice(0, -1)), this.tableBox);
    else this.pair.remove();
    this.root.append(...(room ? [this.pair] : below));
    for (const chart of this.charts.values()) chart.moved();
    if (focused !== document.activeElement && this.root.contains(focused)) focused.focus({ preventScroll: true }); // a moved element loses it
  }

  drawData() {
    const data = this.model.get("data");
    const charts = [...this.charts].sort(([, one], [, other]) => Number(other.visible) - Number(one.visible));
    for (const [name, chart] of charts) {
      chart.setAlternative(data.alt?.[name]);
      if (chart.version === data.version) continue;
      chart.version = data.version;
      chart.update(data.datasets?.[name] ?? {}, data.params?.[name] ?? {});
    }
    this.shown = Promise.all(charts.filter(([, chart]) => chart.visible).map(([, chart]) => chart.queue));
    this.drawn = Promise.all(charts.map(([, chart]) => chart.queue));
    const sentence = unbroken(data.sentence ?? "");
    if (this.sentence.textContent !== sentence) this.sentence.replaceChildren(...told(sentence));
    this.opener.textContent = sentence ? t("Details") : this.model.get("title") || t("Details");
    this.drawStatus();
    this.watchDetails();
    this.answered(data.seq);
  }

  // Second half of an answer -------------------------------------------------

  /** Whether the details of the charts that are shown are still to come. */
  isLate() {
    return this.model.get("status").state === "result" && this.model.get("details").version !== this.model.get("data").version;
  }

  drawSoon() {
    if (this.soon) return;
    this.soon = true;
    afterFrame(() => {
      this.soon = false;
      if (this.isLate()) return; // controls of an older state would take back what the visitor has set since
      this.drawControls();
      this.drawActions();
      this.drawDetails();
    });
  }

  // Tables of an older state than the charts are greyed if it takes longer than a moment.
  watchDetails() {
    const late = this.isLate();
    this.tableBox.setAttribute("aria-busy", String(late));
    if (!late) {
      clearTimeout(this.lateTimer);
      this.lateTimer = 0;
      this.root.classList.remove("pk-late");
    } else if (!this.lateTimer) {
      this.lateTimer = setTimeout(() => this.root.classList.add("pk-late"), STALE_AFTER_MS);
    }
  }

  drawDetails() {
    const details = this.model.get("details");
    replaceIfOther(this.notes, details.notes ?? [], (note) => el("li", MARKED.test(note) ? { class: "pk-marked" } : {}, told(unbroken(note))));
    const opened = [...this.codeBox.children].map((block) => block.querySelector("details")?.open ?? false);
    replaceIfOther(this.codeBox, details.code ?? [], (part, at) => {
      const text = el("pre", { class: "pk-code", tabindex: "0", "data-language": part.language }, part.text);
      const title = el("span", {}, part.title);
      if (!part.folded) return el("figure", { class: "pk-code-block" }, el("figcaption", {}, title, copyButton(part.text)), text);
      return el("div", { class: "pk-code-block pk-code-folded" },
        el("details", { open: opened[at] ?? false }, el("summary", {}, title), text), copyButton(part.text));
    });
    for (const [name, chart] of this.charts) chart.setTable(details.rows?.[name]);
    this.tablesVersion = details.version ?? 0;
    this.drawTables(details.tables ?? []);
    this.notes.hidden = this.sentence.hidden || this.notes.children.length === 0;
    this.watchDetails();
    this.settle();
  }

  // Tables that did not change keep their rows, their focus and their scroll position.
  drawTables(tables) {
    for (const content of tables) {
      if (!this.tables.has(content.name)) {
        this.tables.set(content.name, new Table((row) => this.send({ type: "row", table: content.name, row, version: this.tablesVersion })));
      }
      const table = this.tables.get(content.name);
      const text = JSON.stringify(content);
      if (table.shown !== text) table.update(content);
      table.shown = text;
    }
    const roots = tables.map((content) => this.tables.get(content.name).root);
    if (roots.some((root, index) => this.tableBox.children[index] !== root) || roots.length !== this.tableBox.children.length) {
      this.tableBox.replaceChildren(...roots);
    }
  }

  settle() {
    const { state } = this.model.get("status");
    if (state === "loading") return;
    if (state !== "result") {
      this.finish();
      return;
    }
    if (this.isLate()) return;
    // Data and structure may arrive in either order; the promise of the newest drawing counts.
    const drawn = this.drawn;
    drawn?.then(() => this.drawn === drawn && this.finish());
  }

  /** What stands below is shown from now on: it was not before, as the room that this panel takes was not known. */
  finish() {
    this.beOneLine();
    this.root.classList.remove("pk-undrawn");
    finish(this.key);
  }
}

/** Draws a state into `box`. What is the same stays: a button is told of a press, and keeps its focus, while progress is said. */
export function drawState(box, status, send) {
  const nodes = states[status.state]?.(status, send) ?? [];
  const before = [...box.children];
  if (nodes.length !== before.length) box.replaceChildren(...nodes);
  else nodes.forEach((node, index) => isSame(node, before[index]) || before[index].replaceWith(node));
  box.hidden = !(status.state in states);
}

// JupyterLab marks a button that has the focus.
const isSame = (node, before) => node.isEqualNode(before) || (node.tagName === "BUTTON" && before.tagName === "BUTTON" && node.textContent === before.textContent);

const states = {
  empty: (status, send) => [
    status.title ? el("h3", {}, status.title) : null,
    el("p", {}, status.text),
    status.action ? el("button", { type: "button", class: "pk-button pk-primary", onclick: () => send({ type: "action" }) }, status.action) : null,
    status.retry ? retryButton(send) : null,
  ].filter(Boolean),
  loading: (status, send) => {
    const { progress } = status;
    const share = progress?.total ? Math.min(1, progress.done / progress.total) : null;
    return [
      el("p", {}, status.text || t("Computing…")),
      el("progress", share === null ? { "aria-label": t("progress") } : { value: share, max: 1, "aria-label": t("progress") }),
      progress ? el("p", { class: "pk-note" }, progress.text) : null,
      status.cancellable ? el("button", { type: "button", class: "pk-button", onclick: () => send({ type: "cancel" }) }, t("Cancel")) : null,
    ].filter(Boolean);
  },
  unmeasured: (status) => [
    el("h3", {}, t("Not measured")),
    el("p", {}, status.text),
    status.how ? el("p", {}, t("To collect it:"), " ", el("span", { class: "pk-how" }, status.how)) : null,
  ].filter(Boolean),
  error: (status, send) => [
    el("h3", {}, status.title),
    el("ul", {}, (status.problems ?? []).map((problem) => el("li", {}, problem))),
    status.details ? el("details", {}, el("summary", {}, t("Details")), el("pre", { class: "pk-code", tabindex: "0" }, status.details)) : null,
    status.retry ? retryButton(send) : null,
  ].filter(Boolean),
};

function retryButton(send) {
  return el("button", { type: "button", class: "pk-button", onclick: () => send({ type: "retry" }) }, t("Try again"));
}

export function copyButton(text) {
  const button = el("button", { type: "button", class: "pk-button" }, t("Copy"));
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text);
    button.textContent = t("Copied");
    setTimeout(() => (button.textContent = t("Copy")), 1500);
  });
  return button;
}
