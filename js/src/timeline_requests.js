// What a timeline asks the kernel for: the tiles that are looked at and not held, one request of a kind at a time.
import { viewOf } from "./timeline_clock.js";
import { addSamples } from "./timeline_counters.js";
import { tileNs, widthFor } from "./timeline_tiles.js";

const MAX_UNITS = 48; // of one request, so that the first picture comes soon
const PATIENCE_MS = 20_000;
const LATER_MS = 200;

/** The first and the last tile of a width that a row shows of a view. */
export function tilesOf(row, view, width) {
  const { start, span } = viewOf(row.clock, view);
  const size = tileNs(width);
  return [Math.floor(start / size), Math.floor((start + span) / size)];
}

export class Requests {
  constructor(timeline) {
    this.timeline = timeline;
    this.seq = 0;
    this.clear();
  }

  clear() {
    this.waiting = { tiles: null, counters: null };
    this.refused = new Set();
    this.unreadable = new Set();
    this.picture = null;
  }

  /** Asks for what `rows` lack of a view; what lies beside it comes after what is looked at. */
  ask(view, rows, pixels) {
    const width = widthFor(view.span / pixels);
    for (const kind of ["tiles", "counters"]) {
      if (this.waiting[kind]) continue;
      const mine = rows.filter((row) => row.unit !== undefined && (row.counter ? "counters" : "tiles") === kind);
      const wanted = this.missing(mine, view, width, 0) ?? this.missing(mine, view, width, 1);
      if (!wanted) continue;
      this.seq += 1;
      this.waiting[kind] = { seq: this.seq, ...wanted, width };
      this.timeline.send({ type: kind, seq: this.seq, width, ...wanted });
    }
  }

  /** One request {first, last, units} for tiles that are not there; null if all are. */
  missing(rows, view, width, margin) {
    const groups = new Map(); // of ranks whose clocks drift, other tiles are looked at
    for (const row of rows) {
      const [first, last] = tilesOf(row, view, width).map((index, end) => index + (end ? margin : -margin));
      if (this.lacks(row.unit, width, first, last)) {
        const key = `${first}/${last}`;
        if (!groups.has(key)) groups.set(key, { first, last, units: new Set() });
        groups.get(key).units.add(row.unit);
      }
    }
    const [group] = groups.values();
    return group ? { ...group, units: [...group.units].slice(0, MAX_UNITS) } : null;
  }

  lacks(unit, width, first, last) {
    if (this.refused.has(`${unit}/${width}/${first}/${last}`)) return false;
    for (let index = first; index <= last; index += 1) if (!this.timeline.store.has(unit, width, index)) return true;
    return false;
  }

  /** Whether the kernel said that it cannot give a tile. */
  isRefused(unit, width, index) {
    return this.unreadable.has(`${unit}/${width}/${index}`);
  }

  /** Takes over an answer; one that is no longer waited for is left. */
  receive(message, buffers) {
    const asked = this.waiting[message.type];
    if (asked?.seq !== message.seq) return;
    this.waiting[message.type] = null;
    const { store, base } = this.timeline;
    if (message.later) {
      setTimeout(() => this.timeline.redraw(), LATER_MS);
      return;
    }
    if (message.problem) {
      for (const unit of asked.units) {
        this.refused.add(`${unit}/${asked.width}/${asked.first}/${asked.last}`);
        for (let index = asked.first; index <= asked.last; index += 1) this.unreadable.add(`${unit}/${asked.width}/${index}`);
      }
      this.timeline.live.textContent = message.problem;
    } else if (message.type === "counters") {
      addSamples(store, message, buffers, base);
    } else {
      store.add(message, buffers, base);
    }
    this.timeline.redraw();
  }

  /** Resolves when `rows` of a view that is not the one looked at can be drawn sharp, or nobody answers. */
  async load(view, rows, pixels) {
    const width = widthFor(view.span / pixels);
    const until = performance.now() + PATIENCE_MS;
    this.picture = { view, rows, pixels };
    while (this.missing(rows.filter((row) => row.unit !== undefined), view, width, 0) && performance.now() < until) {
      this.ask(view, rows, pixels);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    this.picture = null;
  }
}
