// The unit tree of a timeline: ranks, their processes, and their streams and threads, each a row as high as its lanes.
import { el } from "./dom.js";
import { LANE } from "./timeline_draw.js";
import { formatNs, grouped } from "./timeline_time.js";
import { t } from "./texts.js";

const MAX_FLAT = 4; // deeper stacks are shown on demand
const HEAD = 24;

export class Rows {
  /** `changed()` is called when rows come, go or grow; `open(rank)` when the units of a rank are wanted. */
  constructor(changed, open) {
    this.changed = changed;
    this.open = open;
    this.closed = new Set();
    this.deep = new Set();
    this.pinned = [];
    this.filter = "";
    this.list = [];
    this.root = el("div", { class: "pk-tl-tree", role: "group", "aria-label": "Ranks, streams and threads" });
  }

  update(setup) {
    this.setup = setup;
    this.units = new Map(setup.units.map((unit) => [unit.id, unit]));
    this.draw();
  }

  /** The total height of all rows. */
  height() {
    const end = this.list.at(-1);
    return end ? end.y + end.height : 0;
  }

  at(y) {
    return this.list.find((row) => y >= row.y && y < row.y + row.height);
  }

  rowOf(unit) {
    return this.list.find((row) => row.unit === unit);
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
  }

  matches(unit) {
    const text = `rank ${unit.rank} ${this.setup.processes[unit.process]} ${unit.label}`.toLowerCase();
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
    const unitRow = (unit, pinned) => {
      const depth = unit.depths.length;
      const lanes = this.deep.has(unit.id) ? depth : Math.min(depth, MAX_FLAT);
      add({ key: `${pinned ? "p" : "u"}${unit.id}`, unit: unit.id, lanes, height: lanes * LANE + 4, node: this.unitNode(unit, lanes, pinned) });
    };
    const pins = this.pinned.map((id) => this.units.get(id)).filter(Boolean);
    if (pins.length) add({ key: "pinned", height: HEAD, node: el("span", { class: "pk-tl-head" }, t("Pinned, to compare")) });
    for (const unit of pins) unitRow(unit, true);
    for (const rank of this.setup.ranks) {
      const units = this.setup.units.filter((unit) => unit.rank === rank.rank && this.matches(unit));
      if (this.filter && rank.open && !units.length) continue;
      const key = `r${rank.rank}`;
      const shown = rank.open && !this.closed.has(key);
      add({ key, height: HEAD, node: this.rankNode(rank, key, shown) });
      if (!shown) continue;
      for (const [process, heading] of Object.entries(this.setup.processes)) {
        const mine = units.filter((unit) => unit.process === process);
        if (!mine.length) continue;
        const inner = `${key}/${process}`;
        const open = !this.closed.has(inner);
        add({ key: inner, height: HEAD, node: this.headNode(`${heading} (${mine.length})`, inner, open, "pk-tl-process") });
        if (open) for (const unit of mine) unitRow(unit, false);
      }
    }
    this.root.style.height = `${y}px`;
    this.root.replaceChildren(...this.list.map((row) =>
      el("div", { class: "pk-tl-row", "data-row": row.key, style: `top:${row.y}px;height:${row.height}px` }, row.node)));
    if (focused) this.root.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
    this.changed();
  }

  rankNode(rank, key, shown) {
    const node = this.headNode(`Rank ${rank.rank}`, key, shown, "pk-tl-rank", () => !rank.open && this.open(rank.rank));
    if (rank.clock) node.append(el("span", { class: "pk-tl-clock", title: "offset that aligns the clock of this rank, and its uncertainty" }, rank.clock));
    return node;
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
    const rank = pinned ? `rank ${unit.rank}, ` : "";
    const title = `${rank}${unit.label}: ${grouped(unit.count)} events, ${formatNs(unit.busy_ns)} in all`;
    const depth = unit.depths.length;
    const isPinned = this.pinned.includes(unit.id);
    return el("span", { class: "pk-tl-unit", title },
      el("button", { type: "button", class: "pk-tl-pin", "aria-pressed": String(isPinned), "aria-label": `Pin ${rank}${unit.label} of rank ${unit.rank}`,
        "data-key": `pin${pinned ? "p" : ""}${unit.id}`, onclick: () => this.pin(unit.id) }, isPinned ? "◆" : "◇"),
      el("span", { class: "pk-tl-name" }, `${rank}${unit.label}`),
      depth > MAX_FLAT ? el("button", { type: "button", class: "pk-tl-more", "aria-expanded": String(lanes === depth), "data-key": `deep${unit.id}`,
        onclick: () => {
          if (!this.deep.delete(unit.id)) this.deep.add(unit.id);
          this.draw();
        } }, lanes === depth ? "less" : `+${depth - lanes} deeper`) : null);
  }
}
