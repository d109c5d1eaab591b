// What lies over the lanes of a timeline: marks, the chosen range and slice, hits of a search, and arrows.
import { LANE } from "./timeline_draw.js";

const ARROWS = { launch: ["#009E73", false], collective: ["#D55E00", true], send: ["#CC79A7", false] };
const HIT = "#c2185b";

export function drawOver(painter, { timeline, rows, view, width, top, height, colors }) {
  const scale = width / view.span;
  const x = (moment) => (moment - view.start) * scale;
  const byUnit = new Map(rows.filter((row) => row.unit !== undefined).map((row) => [row.unit, row]));
  const y = (unit, lane) => {
    const row = byUnit.get(unit);
    return row && row.y - top + 2 + Math.min(lane, row.lanes - 1) * LANE;
  };
  const { range, selected, search, setup } = timeline;
  for (const step of setup.steps) if (step.start > view.start && step.start < view.start + view.span) painter.rect(x(step.start), 0, 1, height, colors.muted, 0.35);
  for (const mark of setup.marks ?? []) painter.rect(x(mark.start), 0, 1.5, height, colors.accent, 0.9);
  if (range) drawRange(painter, { range, x, width, height, colors });
  for (const [unit, lane, start] of search.marks) {
    const at = y(unit, lane);
    if (at !== undefined && x(start) >= -2 && x(start) <= width) painter.rect(x(start) - 1, at + LANE - 4, 3, 4, HIT);
  }
  if (selected) drawSelected(painter, { selected, x, at: y(selected.unit, selected.lane), width, colors });
  for (const arrow of timeline.arrows) drawArrow(painter, arrow, x, y, width);
}

function drawRange(painter, { range, x, width, height, colors }) {
  const [left, right] = [Math.max(0, x(range.start)), Math.min(width, x(range.end))];
  if (right < 0 || left > width) return;
  painter.rect(left, 0, Math.max(1, right - left), height, colors.accent, 0.16);
  painter.rect(left, 0, 1, height, colors.accent);
  painter.rect(right - 1, 0, 1, height, colors.accent);
}

function drawSelected(painter, { selected, x, at, width, colors }) {
  if (at === undefined) return;
  const left = Math.max(-3, x(selected.start));
  const right = Math.min(width + 3, Math.max(x(selected.end), left + 2));
  if (right < 0 || left > width) return;
  for (const [dx, dy, wide, high] of [[-2, -2, right - left + 4, 2], [-2, LANE - 3, right - left + 4, 2], [-2, -2, 2, LANE + 1], [right - left, -2, 2, LANE + 1]]) {
    painter.rect(left + dx, at + dy, wide, high, colors.text);
  }
}

function drawArrow(painter, arrow, x, y, width) {
  const [y1, y2] = [y(arrow.from[0], arrow.from[1]), y(arrow.to[0], arrow.to[1])];
  if (y1 === undefined || y2 === undefined) return;
  const [x1, x2] = [x(arrow.from[2]), x(arrow.to[2])].map((value) => Math.max(-1e5, Math.min(1e5, value)));
  if (Math.max(x1, x2) < 0 || Math.min(x1, x2) > width) return;
  const [color, dashed] = ARROWS[arrow.kind];
  const [a, b] = [y1 + LANE / 2, y2 + LANE / 2];
  const bend = Math.max(12, Math.abs(x2 - x1) / 3);
  painter.line([[x1, a], [x1 + bend, a], [x2 - bend, b], [x2, b]], color, dashed);
  painter.line([[x2 - 6, b - 4], [x2, b], [x2 - 6, b + 4]], color);
}
