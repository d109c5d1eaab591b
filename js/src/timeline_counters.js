// Counters of a timeline: a lane of steps each, as high as two lanes of slices; a step of several samples shows their range.
import { formatBytes, grouped } from "./timeline_time.js";

export const COUNTER_LANES = 2;
const COLORS = ["#0072B2", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#E69F00"];
const SPACE = 4;

/** Takes over a reply of the kernel: {width, tiles} with times, values, lowest, highest and counts. */
export function addSamples(store, reply, buffers, base) {
  const arrays = buffers.map((view) => new Float64Array(view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength)));
  for (const tile of reply.tiles) {
    const [time, value, low, high, count] = arrays.map((array) => array.slice(tile.begin, tile.begin + tile.count));
    const shift = Number(BigInt(tile.base_ns) - base);
    store.put(`${tile.unit}/${reply.width}/${tile.index}`, { n: tile.count, time: time.map((offset) => offset + shift), value, low, high, count, before: tile.before });
  }
  store.makeRoom();
}

/** Draws one tile of a counter between two moments of its lane. */
export function drawCounter(painter, tile, { row, top, view, scale, from, to, width, selected }) {
  const { low, high } = row.counter;
  const color = COLORS[row.color % COLORS.length];
  const bottom = row.y - top + row.height - 2;
  const room = row.height - SPACE - 2;
  const y = (value) => bottom - (room * (value - low)) / (high - low || 1);
  const zero = y(Math.max(low, 0));
  const limit = Math.round(Math.min(width, (to - view.start) * scale));
  let x = Math.round(Math.max(0, (from - view.start) * scale)); // whole pixels, so that no seams show between steps
  let held = tile.before;
  const step = (until) => {
    if (held !== null && until > x) {
      const level = y(held);
      painter.rect(x, Math.min(level, zero), until - x, Math.max(Math.abs(zero - level), 0.5), color, 0.28);
      painter.rect(x, level - 0.75, until - x, 1.5, color);
    }
    x = Math.max(x, until);
  };
  for (let at = 0; at < tile.n; at += 1) {
    const begin = Math.round((tile.time[at] - view.start) * scale);
    if (begin > limit) break;
    step(begin);
    if (begin >= x) {
      const [least, most] = [Math.min(tile.low[at], held ?? tile.low[at]), Math.max(tile.high[at], held ?? tile.high[at])];
      painter.rect(begin, y(most) - 0.75, 1, y(least) - y(most) + 1.5, color, tile.count[at] > 1 ? 0.6 : 1);
    }
    held = tile.value[at];
  }
  step(limit);
  if (selected) painter.rect(Math.max(0, (selected.start - view.start) * scale) - 1, row.y - top + 1, 3, row.height - 3, painter.colors.text);
}

/** What holds at a moment of a tile: {start, end, value, low, high, count}, null before the first sample. */
export function sampleAt(tile, moment, next) {
  let at = -1;
  while (at + 1 < tile.n && tile.time[at + 1] <= moment) at += 1;
  if (at < 0) return tile.before === null ? null : { start: null, end: tile.time[0] ?? next, value: tile.before, low: tile.before, high: tile.before, count: 1 };
  return { start: tile.time[at], end: tile.time[at + 1] ?? next, value: tile.value[at], low: tile.low[at], high: tile.high[at], count: tile.count[at] };
}

/** A value with its unit; a whole number of nothing in particular is a count. */
export function valueText(value, unit) {
  if (unit === "B") return formatBytes(value);
  const shown = !unit && Number.isInteger(value) ? value : Number(value.toPrecision(4));
  return `${grouped(shown)}${unit ? `\u00a0${unit}` : ""}`;
}
