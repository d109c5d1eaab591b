// The unit tree of a timeline: ranks, their processes, and their streams and threads, each a row as high as its lanes.
import { el } from "./dom.js";
import { COUNTER_LANES } from "./timeline_counters.js";
import { LANE } from "./timeline_draw.js";
import { formatNs, grouped } from "./timeline_time.js";
import { t } from "./texts.js";

const MAX_FLAT = 4; // deeper stacks are shown on demand
const HEAD = 24;
const ONE_LINE = 26; // characters of a clock that stand beside the rank; a longer text gets a line of its own
const MANY_COUNTERS = 4; // more are folded at first
const STICKY = 0.6; // pinned lanes stay in sight unless they take more of the height

const HEADINGS = {
  device: t("Device"), communication: t("Communication"), overlap: t("Overlap analysis"), modules: t("Modules"), host: t("Host"),
  pace: t("Launch queue and frequency"), counter: t("Counters"), silent: t("Counters that stay 0"),
};

const WORDS = {
  stream: t("stream"), "no stream": t("no stream"), forward: t("forward"), backward: t("backward"), thread: t("thread"), group: t("group"), "computing alone": t("computing alone"), "communication hidden": t("communication hidden"),
  "communication exposed": t("communication exposed"), free: t("free"),
  "launched, not begun": t("launched, not begun"), "no stream recorded": t("no stream recorded"), "no thread recorded": t("no thread recorded"), "no group recorded": t("no group recorded"),
};

/** What the page itself calls a unit, in the visitor's language; names of streams and counters stay as recorded. */
function labelOf({ label, counter }) {
  if (counter) return label.replace(/^(launched, not begun): (stream|no stream)/, (_, begin, where) => `${WORDS[begin]}: ${WORDS[where]}`);
  return WORDS[label] ?? label.replace(/^(no stream|stream|thread|group)(?=[ ,])|(forward|backward)$/g, (word) => WORDS[word]);
}

export class Rows {
  /** `changed()` is called when rows come, go or grow, `chosen()` when lanes are pinned or not any more, `open(rank)` when the units of a
      rank are wanted, `cancel(rank)` when no more. */
  constructor(changed, chosen, open, cancel) {
    this.changed = changed;
    this.chosen = chosen;
    this.open = open;
    this.cancel = cancel;
    this.pending = {};
    this.closed = new Set();
    this.seen = new Set();
    this.deep = new Set();
    this.pinned = [];
    this.filter = "";
    this.list = [];
    this.root = el("div", { class: "pk-tl-tree", role: "group", "aria-label": t("Ranks, streams and threads") });
  }

  update(setup) {
    this.setup = setup;
    this.units = new Map(setup.units.map((unit) => [unit.id, { ...unit, label: labelOf(unit) }]));
    this.drifts = new Map(setup.ranks.map((rank) => [rank.rank, rank.drift]));
    for (const { rank, process } of setup.units) {
      const key = `r${rank}/${process}`;
      const many = process === "silent" || setup.units.filter((unit) => unit.rank === rank && unit.process === process).length > MANY_COUNTERS;
      if (["pace", "counter", "silent"].includes(process) && many && !this.seen.has(key)) this.closed.add(key);
      this.seen.add(key);
    }
    this.draw();
  }

  /** Takes over which ranks are on their way and how far each is: {rank: {text, done, total}}. */
  wait(pending) {
    const same = Object.keys(pending).join() === Object.keys(this.pending).join();
    this.pending = pending;
    if (!this.setup) return;
    if (!same) {
      this.draw();
      return;
    }
    for (const row of this.list.filter((each) => each.pending)) {
      row.pending = pending[row.rank];
      const bar = this.root.querySelector(`[data-row="${row.key}"] progress`);
      if (row.pending.total) bar.value = row.pending.done / row.pending.total;
    }
    this.changed();
  }

  /** How the clock of a rank drifts; null if it does not. */
  clockOf(rank) {
    return this.drifts.get(rank) ?? null;
  }

  clockOfUnit(unit) {
    return this.clockOf(this.units.get(unit)?.rank);
  }

  clocks() {
    return [...this.drifts.values()].filter(Boolean);
  }

  /** How high the pinned rows are that stay in sight while the others scroll by. */
  sticky(height) {
    const pinned = this.list.filter((row) => row.pinned).reduce((sum, row) => sum + row.height, 0);
    return pinned <= height * STICKY ? pinned : 0;
  }

  /** The total height of all rows. */
  height() {
    const end = this.list.at(-1);
    return end ? end.y + end.height : 0;
  }

  at(y) {
    return this.list.find((row) => y >= row.y && y < row.y + row.height);
  }

  /** The row of a unit in the tree, not its pinned one. */
  rowOf(unit) {
    return this.list.find((row) => row.unit === unit && !row.pinned);
  }

  unitRows() {
    return this.list.filter((row) => row.unit !== undefined);
  }

  /** Makes sure that a unit has a row, and shows its stack as far as `lane`. */
  reveal(unit, lane) {
    const known = this.units.get(unit);
    if (!known) return;
    this.closed.delete(`r${known.rank}`);
    this.closed.delete(`r${known.rank}/${known.process}`);
    if (lane >= MAX_FLAT) this.deep.add(unit);
    if (!this.matches(known)) this.filter = "";
    this.draw();
  }

  pin(unit) {
    this.pinned = this.pinned.includes(unit) ? this.pinned.filter((other) => other !== unit) : [...this.pinned, unit];
    this.draw();
    this.chosen();
  }

  matches(unit) {
    const text = `rank ${unit.rank} ${this.setup.processes[unit.process]} ${HEADINGS[unit.process]} ${unit.label}`.toLowerCase();
    return this.filter.toLowerCase().split(/\s+/).every((word) => text.includes(word));
  }

  draw() {
    const focused = this.root.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    this.list = [];
    let y = 0;
    const add = (row) => {
      this.list.push({ ...row, y });
      y += row.height;
    };
    const ranks = new Map(this.setup.ranks.map((rank) => [rank.rank, rank]));
    const unitRow = (unit, pinned, color = 0) => {
      const depth = unit.depths.length;
      const lanes = this.deep.has(unit.id) ? depth : Math.min(depth, MAX_FLAT);
      const height = (unit.counter ? COUNTER_LANES : lanes) * LANE + 4;
      const fullLabel = `${t("rank")} ${unit.rank}, ${unit.label}`;
      add({ key: `${pinned ? "p" : "u"}${unit.id}`, unit: unit.id, lanes, height, pinned, color, counter: unit.counter ?? null,
        clock: this.clockOf(unit.rank), cut: unit.counter ? null : ranks.get(unit.rank)?.cut ?? null,
        label: pinned ? fullLabel : unit.label, fullLabel, node: this.unitNode(unit, lanes, pinned) });
    };
    const pins = this.pinned.map((id) => this.units.get(id)).filter(Boolean);
    if (pins.length) add({ key: "pinned", height: HEAD, pinned: true, label: t("Pinned, to compare"), node: el("span", { class: "pk-tl-head" }, t("Pinned, to compare")) });
    for (const unit of pins) unitRow(unit, true);
    for (const rank of this.setup.ranks) {
      const units = [...this.units.values()].filter((unit) => unit.rank === rank.rank && this.matches(unit));
      if (this.filter && rank.open && !units.length) continue;
      const key = `r${rank.rank}`;
      const shown = rank.open && !this.closed.has(key);
      const pending = rank.open ? null : this.pending[rank.rank];
      add({ key, height: rank.clock.length > ONE_LINE ? 2 * LANE + 2 : HEAD, lost: rank.lost, label: `${t("Rank")} ${rank.rank}  ${rank.clock}`, node: this.rankNode(rank, key, shown || Boolean(pending)) });
      if (pending) add({ key: `w${rank.rank}`, rank: rank.rank, height: HEAD, pending, label: t("loading…"), node: this.pendingNode(rank.rank, pending) });
      if (!shown) continue;
      for (const process of Object.keys(this.setup.processes)) {
        const mine = units.filter((unit) => unit.process === process);
        if (!mine.length) continue;
        const inner = `${key}/${process}`;
        const open = !this.closed.has(inner);
        const heading = `${HEADINGS[process]} (${mine.length})`;
        add({ key: inner, height: HEAD, label: heading, node: this.headNode(heading, inner, open, "pk-tl-process") });
        if (open) mine.forEach((unit, place) => unitRow(unit, false, place));
      }
    }
    this.root.style.height = `${y}px`;
    this.root.replaceChildren(...this.list.map((row) =>
      el("div", { class: row.pinned ? "pk-tl-row pk-tl-pinned" : "pk-tl-row", "data-row": row.key, style: `top:${row.y}px;height:${row.height}px` }, row.node)));
    if (focused) this.root.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
    this.changed();
  }

  rankNode(rank, key, open) {
    const node = this.headNode(`${t("Rank")} ${rank.rank}`, key, open, "pk-tl-rank", () => !rank.open && (open ? this.cancel(rank.rank) : this.open(rank.rank)));
    if (rank.clock.length > ONE_LINE) node.classList.add("pk-tl-two");
    if (rank.clock) node.append(el("span", { class: "pk-tl-clock", title: rank.clock_title }, rank.clock));
    return node;
  }

  /** The line of a rank that is on its way. */
  pendingNode(rank, { done, total }) {
    return el("span", { class: "pk-tl-head pk-tl-pending" },
      el("progress", { ...(total ? { value: done / total } : {}), max: 1, "aria-label": t("Reading rank {0}", rank) }),
      el("button", { type: "button", class: "pk-tl-fold", "data-key": `c${rank}`, "aria-label": t("Do not wait for rank {0}", rank), onclick: () => this.cancel(rank) }, t("Cancel")));
  }

  headNode(text, key, open, name, before = () => false) {
    const toggle = () => {
      if (before()) this.closed.delete(key);
      else if (open) this.closed.add(key);
      else this.closed.delete(key);
      this.draw();
    };
    return el("span", { class: `pk-tl-head ${name}` },
      el("button", { type: "button", class: "pk-tl-fold", "aria-expanded": String(open), "data-key": key, onclick: toggle },
        el("span", { "aria-hidden": "true" }, open ? "▾ " : "▸ "), text));
  }

  unitNode(unit, lanes, pinned) {
    const rank = pinned ? `${t("rank")} ${unit.rank}, ` : "";
    const known = this.setup.ranks.find((each) => each.rank === unit.rank);
    const title = unit.counter ? t("{0}: {1} samples, {2}", `${rank}${unit.label}`, grouped(unit.count), unit.counter.text)
      : t("{0}: {1} events, {2} in all", `${rank}${unit.label}`, grouped(unit.count), formatNs(unit.busy_ns));
    const depth = unit.depths.length;
    const isPinned = this.pinned.includes(unit.id);
    return el("span", { class: "pk-tl-unit", title: known?.clock && pinned ? `${title}; ${known.clock}` : title },
      el("button", { type: "button", class: "pk-tl-pin", "aria-pressed": String(isPinned), "aria-label": t("Pin {0} of rank {1}", unit.label, unit.rank),
        "data-key": `pin${pinned ? "p" : ""}${unit.id}`, onclick: () => this.pin(unit.id) }, isPinned ? "◆" : "◇"),
      el("span", { class: "pk-tl-name" }, `${rank}${unit.label}`, unit.counter ? el("span", { class: "pk-tl-range" }, unit.counter.text) : null),
      depth > MAX_FLAT ? el("button", { type: "button", class: "pk-tl-more", "aria-expanded": String(lanes === depth), "data-key": `deep${unit.id}`,
        onclick: () => {
          if (!this.deep.delete(unit.id)) this.deep.add(unit.id);
          this.draw();
        } }, lanes === depth ? t("less") : t("+{0} deeper", depth - lanes)) : null);
  }
}
