// The pointer on a timeline: drag pans, on the ruler or with Shift it selects, Ctrl and the wheel zoom, a click selects a slice.
import { toCommon, toRecorded } from "./timeline_clock.js";
import { sampleAt, valueText } from "./timeline_counters.js";
import { LANE } from "./timeline_draw.js";
import { tileNs, widthFor } from "./timeline_tiles.js";
import { exactNs, formatNs, grouped, slicesText } from "./timeline_time.js";
import { t } from "./texts.js";

const CLICK = 4;

export function followPointer(timeline) {
  const { canvas, ruler } = timeline;
  canvas.addEventListener("pointerdown", (event) => press(timeline, event, event.shiftKey));
  ruler.addEventListener("pointerdown", (event) => press(timeline, event, true));
  canvas.addEventListener("pointermove", (event) => hover(timeline, event));
  canvas.addEventListener("pointerleave", () => {
    timeline.pointer = null;
    timeline.tip.hidden = true;
  });
  canvas.addEventListener("wheel", (event) => wheel(timeline, event, event.ctrlKey || event.metaKey), { passive: false });
  ruler.addEventListener("wheel", (event) => wheel(timeline, event, true), { passive: false });
}

function timeAt(timeline, x) {
  return timeline.view.start + (timeline.view.span * x) / timeline.width();
}

function press(timeline, event, selecting) {
  if (event.button !== 0 || !timeline.setup) return;
  const target = event.currentTarget;
  const from = { x: event.offsetX, y: event.offsetY, start: timeline.view.start };
  timeline.canvas.focus({ preventScroll: true });
  target.setPointerCapture(event.pointerId);
  const move = (next) => {
    const moved = next.offsetX - from.x;
    if (Math.abs(moved) < CLICK && !timeline.dragging) return;
    timeline.dragging = true;
    timeline.tip.hidden = true;
    if (selecting) {
      const [a, b] = [timeAt(timeline, from.x), timeAt(timeline, next.offsetX)];
      timeline.range = { start: Math.min(a, b), end: Math.max(a, b), units: target === timeline.canvas ? between(timeline, from.y, next.offsetY) : null };
      timeline.redraw();
    } else {
      timeline.setView(from.start - (moved * timeline.view.span) / timeline.width(), timeline.view.span);
    }
  };
  const release = (next) => {
    target.removeEventListener("pointermove", move);
    target.removeEventListener("pointerup", release);
    target.removeEventListener("pointercancel", release);
    if (!timeline.dragging) {
      if (target === timeline.canvas) choose(timeline, next.offsetX, next.offsetY);
    } else if (selecting) {
      timeline.selectRange(timeline.range.start, timeline.range.end, timeline.range.units);
    }
    timeline.dragging = false;
  };
  target.addEventListener("pointermove", move);
  target.addEventListener("pointerup", release);
  target.addEventListener("pointercancel", release);
}

/** Selects the slice under a point, or the sample of a counter, which the kernel knows. */
function choose(timeline, x, y) {
  const point = place(timeline, x, y);
  if (point?.row.counter) timeline.walkTo(point.row.unit, 0, point.moment);
  else timeline.select(hit(timeline, x, y));
}

function between(timeline, y1, y2) {
  const [low, high] = [Math.min(y1, y2), Math.max(y1, y2)];
  const seen = timeline.rows.unitRows().filter((row) => {
    const y = row.y - timeline.topOf(row);
    return y <= high && y + row.height >= low && (row.pinned || y + row.height > timeline.sticky);
  });
  return [...new Set(seen.map((row) => row.unit))];
}

/** The row under a point of the canvas, how far below its top the point lies, and the moment on its lanes. */
function place(timeline, x, y) {
  const row = timeline.rows.at(y < timeline.sticky ? y : y + timeline.scroll.scrollTop);
  if (row?.unit === undefined) return null;
  return { row, below: y + timeline.topOf(row) - row.y, moment: toRecorded(row.clock, timeAt(timeline, x)) };
}

/** The slice under a point of the canvas, the shortest if several share the pixel; null if there is none. */
function hit(timeline, x, y) {
  const point = place(timeline, x, y);
  if (!point || point.row.counter) return null;
  const { row, below, moment } = point;
  const lane = Math.floor((below - 2) / LANE);
  const { view, store } = timeline;
  const pixel = view.span / timeline.width();
  const width = widthFor(pixel);
  const found = store.best(row.unit, width, Math.floor(moment / tileNs(width)));
  if (!found) return null;
  const [tile] = found;
  let best = -1;
  for (let index = 0; index < tile.n; index += 1) {
    if (tile.lane[index] !== lane || tile.start[index] > moment + pixel || tile.end[index] < moment - pixel) continue;
    if (best < 0 || tile.end[index] - tile.start[index] < tile.end[best] - tile.start[best]) best = index;
  }
  return best < 0 ? null : sliceOf(store, tile, best, row.unit);
}

/** The lines of a counter under a point: its value and since when it holds; null elsewhere. */
function counterText(timeline, x, y) {
  const point = place(timeline, x, y);
  if (!point?.row.counter) return null;
  const { row, moment } = point;
  const width = widthFor(timeline.view.span / timeline.width());
  const found = timeline.store.best(row.unit, width, Math.floor(moment / tileNs(width)));
  const sample = found && sampleAt(found[0], moment);
  if (!sample) return [row.label, t("no sample yet")];
  const { unit } = row.counter;
  const value = sample.count > 1 ? t("{0} to {1} in {2} samples, at last {3}", valueText(sample.low, unit), valueText(sample.high, unit), grouped(sample.count), valueText(sample.value, unit))
    : valueText(sample.value, unit);
  const since = sample.start === null ? [] : [t("since {0}", exactNs(toCommon(row.clock, sample.start) - timeline.setup.start))];
  return [row.label, value, ...since];
}

function sliceOf(store, tile, index, unit) {
  return {
    unit, lane: tile.lane[index], start: tile.start[index], end: tile.end[index], count: tile.count[index], busy: tile.busy[index],
    name: tile.name[index] < 0 ? "" : store.names[tile.name[index]], kind: store.kinds[tile.kind[index]],
  };
}

function hover(timeline, event) {
  timeline.pointer = { x: event.offsetX, y: event.offsetY, clientX: event.clientX, clientY: event.clientY };
  drawTip(timeline);
}

/** Says what is under the pointer, which also changes when the lanes move below it. */
export function drawTip(timeline) {
  const { pointer } = timeline;
  if (!pointer || timeline.dragging || !timeline.setup) return;
  const slice = hit(timeline, pointer.x, pointer.y);
  const lines = slice ? sliceText(timeline, slice) : counterText(timeline, pointer.x, pointer.y);
  timeline.tip.hidden = !lines;
  if (!lines) return;
  timeline.tip.replaceChildren(...lines.map((text) => Object.assign(document.createElement("div"), { textContent: text })));
  const box = timeline.tip.parentElement.getBoundingClientRect();
  const left = pointer.clientX - box.left + 14;
  timeline.tip.style.left = `${Math.max(0, Math.min(left, box.width - timeline.tip.offsetWidth - 8))}px`;
  const below = pointer.clientY - box.top + 16;
  timeline.tip.style.top = `${below + timeline.tip.offsetHeight > box.height ? Math.max(0, below - timeline.tip.offsetHeight - 28) : below}px`;
}

function sliceText(timeline, slice) {
  const name = slice.count > 1 ? t("{0}, busy {1}", slicesText(slice.count), formatNs(slice.busy)) : slice.name;
  const start = toCommon(timeline.rows.clockOfUnit(slice.unit), slice.start) - timeline.setup.start;
  return [name.slice(0, 300), `${exactNs(slice.end - slice.start)}, ${slice.kind}`, t("at {0}", exactNs(start))];
}

function wheel(timeline, event, zooming) {
  if (!timeline.setup) return;
  const sideways = event.shiftKey ? event.deltaY || event.deltaX : Math.abs(event.deltaX) > Math.abs(event.deltaY) ? event.deltaX : 0;
  if (zooming) timeline.zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 240))), event.offsetX);
  else if (sideways) timeline.pan(sideways / timeline.width());
  else return;
  event.preventDefault();
}
