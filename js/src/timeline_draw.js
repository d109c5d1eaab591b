// Drawing of a timeline, on a canvas or as SVG: both take rectangles, lines and texts.
import { toCommon, viewOf } from "./timeline_clock.js";
import { drawCounter } from "./timeline_counters.js";
import { tilesOf } from "./timeline_requests.js";
import { grouped, slicesText, ticks } from "./timeline_time.js";
import { tileNs, widthFor } from "./timeline_tiles.js";
import { t } from "./texts.js";

export const LANE = 18;
export const RULER = 40;
const INK = "#10161c";
const COLORS = {
  computing: "#0072B2", communication: "#E69F00", copy: "#CC79A7", mixed: "#8d99a6",
  operator: "#56B4E9", call: "#009E73", mark: "#F0E442", python: "#b9a6d3",
  "computing alone": "#0072B2", "communication hidden": "#E69F00", "communication exposed": "#E69F00", free: "#D55E00",
};
const MODULES = ["#9fc3e6", "#c3b4e0", "#a8d5ba", "#e6cf9f"]; // neighbours are told apart
const HATCHED = new Set(["communication hidden"]);
const MIN_TEXT = 34;
const CHAR = 6.3;

/** The colours of a page: light or dark, from its variables. */
export function palette(node) {
  const style = getComputedStyle(node);
  const color = (name) => style.getPropertyValue(`--pk-${name}`).trim();
  return {
    text: color("text"), muted: color("muted"), line: color("line"), grid: color("grid"), surface: color("surface"),
    raised: color("raised"), accent: color("accent"), bad: color("bad"), warn: color("warn"), font: style.fontFamily,
  };
}

export function colorOf(kind) {
  return COLORS[kind] ?? "#8d99a6";
}

export function inkOn(kind) {
  return kind === "computing" || kind === "computing alone" ? "#ffffff" : INK;
}

/**
 * Draws the lanes of `rows` ({unit, y, lanes, clock}) into `painter`; returns whether every tile was there at full sharpness.
 * `topOf(row)` is how far the row is scrolled up.
 */
export function drawLanes(painter, { rows, view, store, width, topOf, height, end, highlight, selected, refused }) {
  const tileWidth = widthFor(view.span / width);
  const size = tileNs(tileWidth);
  let sharp = true;
  for (const row of rows) {
    const top = topOf(row);
    if (row.y + row.height < top || row.y > top + height) continue;
    if (row.pending) {
      drawWaiting(painter, { x: 0, y: row.y - top, width, height: row.height, text: row.pending.text || t("waits for its turn") });
      continue;
    }
    if (row.unit === undefined) {
      drawHead(painter, { row, top, view, width });
      continue;
    }
    const own = viewOf(row.clock, view);
    const scale = width / own.span;
    const [first, last] = tilesOf(row, view, tileWidth);
    painter.rect(0, row.y - top + row.height - 1, width, 1, painter.colors.grid);
    const labels = []; // written last: a slice that reaches over several tiles is drawn in parts, and called once
    for (let index = first; index <= last; index += 1) {
      const found = store.best(row.unit, tileWidth, index);
      if (!found || !found[1]) sharp = false;
      const [from, to] = [index * size, (index + 1) * size];
      if (!found) {
        const left = Math.max(0, (from - own.start) * scale);
        const text = refused(row.unit, tileWidth, index) ? t("cannot be read") : t("loading…");
        drawWaiting(painter, { x: left, y: row.y - top + 1, width: Math.min(width, (to - own.start) * scale) - left, height: row.height - 2, text });
      } else if (row.counter) {
        drawCounter(painter, found[0], { row, top, view: own, scale, from, to, width, selected: selected?.unit === row.unit ? selected : null });
      } else {
        drawTile(painter, found[0], { row, top, view: own, scale, store, highlight, from, to, width, labels });
      }
    }
    for (const place of labels) label(painter, place);
    if (row.cut !== null) drawLost(painter, { row, top, view, width, from: toCommon(row.clock, row.cut), to: end });
  }
  return sharp;
}

/** What is not there yet: it must not look as if nothing had happened. */
function drawWaiting(painter, { x, y, width, height, text }) {
  if (width <= 0) return;
  painter.rect(x, y, width, height, painter.colors.raised, 0.6, "waiting");
  const wide = painter.measure(text) + 8;
  if (width < wide + 8) return;
  painter.rect(x + 4, y + height / 2 - 7, wide, 14, painter.colors.surface);
  painter.text(x + 8, y + height / 2, text, painter.colors.muted);
}

/** The line of a rank or a process; what was lost of a rank has no time, so it is a band over all of it. */
function drawHead(painter, { row, top, view, width }) {
  painter.rect(0, row.y - top, width, row.height, painter.colors.raised);
  if (row.lost) {
    drawLost(painter, { row, top, view, width, from: view.start, to: view.start + view.span });
    const text = `${lostText(row.lost.count)}: ${row.lost.text}`;
    const room = Math.min(Math.floor((width - 20) / CHAR), text.length);
    painter.rect(4, row.y - top + row.height / 2 - 8, Math.min(painter.measure(text) + 8, width - 8), 16, painter.colors.surface);
    painter.text(8, row.y - top + row.height / 2, room < text.length ? `${text.slice(0, room - 1)}…` : text, painter.colors.text);
  }
}

/** How many events were lost, where somebody counted them. */
export function lostText(count) {
  if (count === 1) return t("1 event lost");
  return count ? t("{0} events lost", grouped(count)) : t("Events lost");
}

/** A hatched band where events are missing. */
function drawLost(painter, { row, top, view, width, from, to }) {
  const scale = width / view.span;
  const [left, right] = [Math.max(0, (from - view.start) * scale), Math.min(width, (to - view.start) * scale)];
  if (right > left) painter.rect(left, row.y - top + 1, right - left, row.height - 2, painter.colors.warn, 0.3, true);
}

function drawTile(painter, tile, { row, top, view, scale, store, highlight, from, to, width, labels }) {
  const left = Math.max(0, onPixel((from - view.start) * scale)); // so that no seam shows where one tile ends and the next begins
  const right = Math.min(width, onPixel((to - view.start) * scale));
  const { start, end, lane, kind, count, name, n } = tile;
  for (let at = 0; at < n; at += 1) {
    if (lane[at] >= row.lanes) continue;
    const begin = (start[at] - view.start) * scale;
    const finish = (end[at] - view.start) * scale;
    if (finish < left - 1 || begin >= right) continue;
    const x = begin > left ? begin : left;
    const wide = Math.max(0.7, (finish < right ? finish : right) - x);
    const y = row.y - top + 2 + lane[at] * LANE;
    const what = store.kinds[kind[at]];
    const merged = count[at] > 1;
    const lit = highlight === null || (name[at] >= 0 && highlight.has(name[at]));
    const color = what === "module" ? MODULES[Math.max(0, name[at]) % MODULES.length] : colorOf(what);
    painter.rect(x, merged ? y + 3 : y, wide, merged ? LANE - 9 : LANE - 3, color, lit ? (merged ? 0.6 : 1) : 0.22, HATCHED.has(what));
    const room = Math.min(finish, width) - x;
    if (room >= MIN_TEXT && (begin >= left || left === 0)) {
      labels.push({ x, y, wide: room, text: merged ? slicesText(count[at]) : store.names[name[at]], ink: merged || !lit ? null : inkOn(what) });
    }
  }
}

function onPixel(x) {
  const ratio = globalThis.devicePixelRatio || 1;
  return Math.round(x * ratio) / ratio;
}

function label(painter, { x, y, wide, text, ink }) {
  let room = Math.min(text.length, Math.floor((wide - 6) / CHAR));
  const cut = () => (text.length > room ? `${text.slice(0, room - 1)}…` : text);
  while (room >= 3 && painter.measure(cut()) > wide - 5) room -= 1;
  if (room >= Math.min(3, text.length)) painter.text(x + 3, y + LANE / 2 - 1, cut(), ink);
}

/** The ruler: ticks, the steps of the run as bands, and the flags of marks. */
export function drawRuler(painter, { timeline, view, width, height }) {
  const { setup, rows } = timeline;
  const { colors } = painter;
  const scale = width / view.span;
  painter.rect(0, 0, width, height, colors.surface);
  setup.steps.forEach((step, index) => {
    const [start, end] = [step.start, step.end].map((moment) => toCommon(rows.clockOf(step.rank), moment));
    const left = Math.max(0, (start - view.start) * scale);
    const right = Math.min(width, (end - view.start) * scale);
    if (right <= left) return;
    painter.rect(left, 0, right - left, 18, index % 2 ? colors.grid : colors.raised);
    painter.rect(left, 0, 1, 18, colors.muted);
    if (right - left > 50) painter.text(left + 6, 9, `${t("step")} ${step.step}`, colors.text);
  });
  for (const tick of ticks(view.start, view.span, width, setup.start)) {
    const x = (tick.at - view.start) * scale;
    painter.rect(x, 20, 1, height - 20, colors.muted);
    if (x + 4 + painter.measure(tick.text) <= width) painter.text(x + 4, 30, tick.text, colors.muted);
  }
  for (const mark of setup.marks ?? []) painter.text((mark.start - view.start) * scale + 2, 27, `⚑ ${mark.note.slice(0, 40)}`, colors.accent);
}

/** A painter on a canvas, in CSS pixels. */
export class CanvasPainter {
  constructor(canvas, colors) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: true });
    this.colors = colors;
  }

  begin(width, height) {
    const ratio = globalThis.devicePixelRatio || 1;
    const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (this.canvas.width !== wide || this.canvas.height !== high) {
      this.canvas.width = wide;
      this.canvas.height = high;
      this.canvas.style.width = `${width}px`;
      this.canvas.style.height = `${height}px`;
    }
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.context.clearRect(0, 0, width, height);
    this.context.font = `11px ${this.colors.font}`;
    this.context.textBaseline = "middle";
    this.fill = null;
    this.alpha = 1;
    this.context.globalAlpha = 1;
  }

  rect(x, y, width, height, color, alpha = 1, hatched = false) {
    this.style(color, alpha);
    this.context.fillRect(x, y, width, height);
    if (hatched && width > 3) {
      this.style(this.hatch(hatched === "waiting"), alpha);
      this.context.fillRect(x, y, width, height);
    }
  }

  text(x, y, text, color) {
    this.style(color ?? this.colors.text, 1);
    this.context.fillText(text, x, y);
  }

  measure(text) {
    return this.context.measureText(text).width;
  }

  line(points, color, dashed = false, alpha = 1) {
    const { context } = this;
    context.globalAlpha = this.alpha = alpha;
    context.strokeStyle = color;
    context.lineWidth = 1.5;
    context.setLineDash(dashed ? [5, 3] : []);
    context.beginPath();
    context.moveTo(points[0][0], points[0][1]);
    if (points.length === 4) context.bezierCurveTo(...points[1], ...points[2], ...points[3]);
    else for (const [x, y] of points.slice(1)) context.lineTo(x, y);
    context.stroke();
  }

  style(color, alpha) {
    if (color !== this.fill) this.context.fillStyle = this.fill = color;
    if (alpha !== this.alpha) this.context.globalAlpha = this.alpha = alpha;
  }

  /** Dark lines that rise; for what is awaited pale ones that fall. */
  hatch(waiting) {
    this.patterns ??= new Map();
    if (!this.patterns.has(waiting)) {
      const size = waiting ? 12 : 6;
      const small = document.createElement("canvas");
      small.width = small.height = size;
      const context = small.getContext("2d");
      context.strokeStyle = waiting ? this.colors.line : "#10161cb0";
      context.lineWidth = waiting ? 2 : 1.2;
      context.beginPath();
      for (const at of [-size, 0, size]) {
        context.moveTo(at, waiting ? 0 : size);
        context.lineTo(at + size, waiting ? size : 0);
      }
      context.stroke();
      this.patterns.set(waiting, this.context.createPattern(small, "repeat"));
    }
    return this.patterns.get(waiting);
  }
}

/** A painter that writes SVG; texts are escaped. */
export class SvgPainter {
  constructor(colors) {
    this.colors = colors;
    this.parts = [];
  }

  rect(x, y, width, height, color, alpha = 1, hatched = false) {
    const box = `x="${x.toFixed(2)}" y="${y.toFixed(2)}" width="${width.toFixed(2)}" height="${height.toFixed(2)}"`;
    this.parts.push(`<rect ${box} fill="${escaped(color)}"${alpha < 1 ? ` fill-opacity="${alpha}"` : ""}/>`);
    if (hatched) this.parts.push(`<rect ${box} fill="url(#${hatched === "waiting" ? "waiting" : "hatch"})"/>`);
  }

  text(x, y, text, color) {
    this.parts.push(`<text x="${x.toFixed(2)}" y="${(y + 4).toFixed(2)}" fill="${escaped(color ?? this.colors.text)}">${escaped(text)}</text>`);
  }

  measure(text) {
    return text.length * CHAR;
  }

  line(points, color, dashed = false, alpha = 1) {
    const path = points.length === 4 ? `M${points[0]}C${points.slice(1).join(" ")}` : `M${points.join("L")}`;
    this.parts.push(`<path d="${path}" fill="none" stroke="${escaped(color)}" stroke-width="1.5"${alpha < 1 ? ` stroke-opacity="${alpha}"` : ""}${dashed ? ' stroke-dasharray="5 3"' : ""}/>`);
  }

  move(x, y, draw) {
    this.parts.push(`<g transform="translate(${x} ${y})">`);
    draw();
    this.parts.push("</g>");
  }

  finish(width, height) {
    const hatch = '<pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse"><path d="M0 6L6 0" stroke="#10161c" stroke-opacity=".7"/></pattern>'
      + `<pattern id="waiting" width="12" height="12" patternUnits="userSpaceOnUse"><path d="M0 0L12 12" stroke="${escaped(this.colors.line)}" stroke-width="2"/></pattern>`;
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" font-family="sans-serif" font-size="11">`
      + `<defs>${hatch}</defs><rect width="${width}" height="${height}" fill="${escaped(this.colors.surface)}"/>${this.parts.join("")}</svg>`;
  }
}

function escaped(text) {
  return String(text).replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}
