// The pointer on a timeline: drag pans, on the ruler or with Shift it selects, Ctrl and the wheel zoom, a click selects a slice.
import { LANE } from "./timeline_draw.js";
import { tileNs, widthFor } from "./timeline_tiles.js";
import { exactNs, formatNs, slicesText } from "./timeline_time.js";

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
      if (target === timeline.canvas) timeline.select(hit(timeline, next.offsetX, next.offsetY));
    } else if (selecting) {
      timeline.selectRange(timeline.range.start, timeline.range.end, timeline.range.units);
    }
    timeline.dragging = false;
  };
  target.addEventListener("pointermove", move);
  target.addEventListener("pointerup", release);
  target.addEventListener("pointercancel", release);
}

function between(timeline, y1, y2) {
  const top = timeline.scroll.scrollTop;
  const [low, high] = [Math.min(y1, y2) + top, Math.max(y1, y2) + top];
  return [...new Set(timeline.rows.unitRows().filter((row) => row.y <= high && row.y + row.height >= low).map((row) => row.unit))];
}

/** The slice under a point of the canvas, the shortest if several share the pixel; null if there is none. */
function hit(timeline, x, y) {
  const at = y + timeline.scroll.scrollTop;
  const row = timeline.rows.at(at);
  if (row?.unit === undefined) return null;
  const lane = Math.floor((at - row.y - 2) / LANE);
  const { view, store } = timeline;
  const width = widthFor(view.span / timeline.width());
  const pixel = view.span / timeline.width();
  const moment = timeAt(timeline, x);
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

function sliceOf(store, tile, index, unit) {
  return {
    unit, lane: tile.lane[index], start: tile.start[index], end: tile.end[index], count: tile.count[index], busy: tile.busy[index],
    name: tile.name[index] < 0 ? "" : store.names[tile.name[index]], kind: store.kinds[tile.kind[index]],
  };
}

function hover(timeline, event) {
  timeline.pointer = { x: event.offsetX };
  if (timeline.dragging || !timeline.setup) return;
  const slice = hit(timeline, event.offsetX, event.offsetY);
  timeline.tip.hidden = !slice;
  if (!slice) return;
  const name = slice.count > 1 ? `${slicesText(slice.count)}, busy ${formatNs(slice.busy)}` : slice.name;
  timeline.tip.replaceChildren(...[name.slice(0, 300), `${exactNs(slice.end - slice.start)}, ${slice.kind}`, `at ${exactNs(slice.start - timeline.setup.start)}`]
    .map((text) => Object.assign(document.createElement("div"), { textContent: text })));
  const box = timeline.tip.parentElement.getBoundingClientRect();
  const left = event.clientX - box.left + 14;
  timeline.tip.style.left = `${Math.max(0, Math.min(left, box.width - timeline.tip.offsetWidth - 8))}px`;
  timeline.tip.style.top = `${event.clientY - box.top + 16}px`;
}

function wheel(timeline, event, zooming) {
  if (!timeline.setup) return;
  const sideways = event.shiftKey ? event.deltaY || event.deltaX : Math.abs(event.deltaX) > Math.abs(event.deltaY) ? event.deltaX : 0;
  if (zooming) timeline.zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 240))), event.offsetX);
  else if (sideways) timeline.pan(sideways / timeline.width());
  else return;
  event.preventDefault();
}
