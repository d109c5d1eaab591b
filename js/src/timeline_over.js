// What lies over the lanes of a timeline: marks, the chosen range and slice, hits of a search, and arrows.
import { reachOf, toCommon } from "./timeline_clock.js";
import { LANE } from "./timeline_draw.js";

const ARROWS = { launch: ["#009E73", false], collective: ["#D55E00", true], send: ["#CC79A7", false] };
const HIT = "#c2185b";
const NEAR = 3; // pixels
const MANY = 60; // of more arrows each is drawn faint, so that the lanes stay readable

export function drawOver(painter, { timeline, rows, view, width, topOf, height, range }) {
  const { colors } = painter;
  const scale = width / view.span;
  const at = (moment) => (moment - view.start) * scale;
  const x = (unit, moment) => at(toCommon(timeline.rows.clockOfUnit(unit), moment));
  const known = new Map();
  for (const row of rows) if (row.unit !== undefined) known.set(row.unit, [...(known.get(row.unit) ?? []), row]);
  const y = (row, lane) => row.y - topOf(row) + 2 + (row.counter ? 0 : Math.min(lane, row.lanes - 1) * LANE);
  const { selected, search, setup } = timeline;
  for (const step of setup.steps) {
    const start = toCommon(timeline.rows.clockOf(step.rank), step.start);
    if (start > view.start && start < view.start + view.span) painter.rect(at(start), 0, 1, height, colors.muted, 0.35);
  }
  if (timeline.pair.aligned) painter.rect(at(timeline.pair.anchor()) - 1, 0, 2, height, colors.accent, 0.8);
  for (const mark of setup.marks ?? []) painter.rect(at(mark.start), 0, 1.5, height, colors.accent, 0.9);
  if (range) drawRange(painter, { range, at, width, height, rows, topOf });
  for (const [unit, lane, start] of search.marks) {
    const left = x(unit, start);
    if (left < -2 || left > width) continue;
    for (const row of known.get(unit) ?? []) painter.rect(left - 1, y(row, lane) + LANE - 4, 3, 4, HIT);
  }
  for (const row of selected ? known.get(selected.unit) ?? [] : []) {
    if (!row.counter) drawSelected(painter, { from: x(selected.unit, selected.start), to: x(selected.unit, selected.end), top: y(row, selected.lane), width });
  }
  const alpha = timeline.arrows.length > MANY ? 0.45 : 1;
  for (const arrow of timeline.arrows) drawArrow(painter, arrow, { known, x, y, width, alpha });
}

/** How far from the view's edges what the kernel tells in recorded moments may lie in it. */
export function marginOf(timeline, view) {
  return Math.ceil(reachOf(timeline.rows.clocks(), view));
}

/** The range over all lanes, or over those that it was drawn around. */
function drawRange(painter, { range, at, width, height, rows, topOf }) {
  const { colors } = painter;
  const [left, right] = [Math.max(0, at(range.start)), Math.min(width, at(range.end))];
  if (right < 0 || left > width) return;
  const boxes = range.units ? rows.filter((row) => range.units.includes(row.unit)).map((row) => [row.y - topOf(row), row.height]) : [[0, height]];
  for (const [top, high] of boxes) {
    painter.rect(left, top, Math.max(1, right - left), high, colors.accent, 0.16);
    painter.rect(left, top, 1, high, colors.accent);
    painter.rect(right - 1, top, 1, high, colors.accent);
  }
}

function drawSelected(painter, { from, to, top, width }) {
  const left = Math.max(-NEAR, from);
  const right = Math.min(width + NEAR, Math.max(to, left + 2));
  if (right < 0 || left > width) return;
  for (const [dx, dy, wide, high] of [[-2, -2, right - left + 4, 2], [-2, LANE - 3, right - left + 4, 2], [-2, -2, 2, LANE + 1], [right - left, -2, 2, LANE + 1]]) {
    painter.rect(left + dx, top + dy, wide, high, painter.colors.text);
  }
}

/** An arrow between two lanes; between pinned ones if both are. */
function drawArrow(painter, arrow, { known, x, y, width, alpha }) {
  const ends = [arrow.from, arrow.to].map(([unit]) => known.get(unit) ?? []);
  const pinned = ends.every((rows) => rows.some((row) => row.pinned));
  const [start, end] = ends.map((rows) => rows.find((row) => Boolean(row.pinned) === pinned));
  if (!start || !end) return;
  const [x1, x2] = [arrow.from, arrow.to].map(([unit, , moment]) => Math.max(-1e5, Math.min(1e5, x(unit, moment))));
  if (Math.max(x1, x2) < 0 || Math.min(x1, x2) > width) return;
  const [color, dashed] = ARROWS[arrow.kind];
  const [a, b] = [y(start, arrow.from[1]) + LANE / 2, y(end, arrow.to[1]) + LANE / 2];
  const bend = Math.max(12, Math.abs(x2 - x1) / 3);
  painter.line([[x1, a], [x1 + bend, a], [x2 - bend, b], [x2, b]], color, dashed, alpha);
  painter.line([[x2 - 6, b - 4], [x2, b], [x2 - 6, b + 4]], color, false, alpha);
}
