// Pictures of a timeline: of the selected range and its lanes if there is one, else of the view with all lanes.
import { download } from "./dom.js";
import { CanvasPainter, RULER, SvgPainter, drawRuler, palette } from "./timeline_draw.js";

const TREE = 220;
const NAME = 36;

export async function exportPng(timeline) {
  const picture = await prepared(timeline);
  const painter = new CanvasPainter(document.createElement("canvas"), palette(timeline.root));
  const [width, height] = [picture.width + TREE, picture.height + RULER];
  painter.begin(width, height);
  painter.rect(0, 0, width, height, painter.colors.surface);
  paint(timeline, painter, picture, (x, y, draw) => {
    painter.context.save();
    painter.context.translate(x, y);
    painter.context.beginPath();
    painter.context.rect(0, 0, width, height);
    painter.context.clip();
    draw();
    painter.context.restore();
    painter.fill = null;
    painter.alpha = -1;
  });
  painter.canvas.toBlob((blob) => download("timeline.png", blob, "image/png"));
}

export async function exportSvg(timeline) {
  const picture = await prepared(timeline);
  const painter = new SvgPainter(palette(timeline.root));
  paint(timeline, painter, picture, (x, y, draw) => painter.move(x, y, draw));
  download("timeline.svg", painter.finish(picture.width + TREE, picture.height + RULER), "image/svg+xml");
}

/** What a picture shows, once its tiles are there: {view, rows, width, height}. */
async function prepared(timeline) {
  const { range, rows } = timeline;
  const width = timeline.width();
  const view = range && range.end > range.start ? { start: range.start, span: range.end - range.start } : { ...timeline.view };
  const chosen = range?.units?.length ? rows.unitRows().filter((row) => !row.pinned && range.units.includes(row.unit)) : rows.list;
  let height = 0;
  const placed = chosen.map((row) => {
    height += row.height;
    return { ...row, y: height - row.height, label: chosen === rows.list ? row.label : row.fullLabel };
  });
  await timeline.requests.load(view, placed, width);
  return { view, rows: placed, width, height };
}

function paint(timeline, painter, { view, rows, width, height }, move) {
  move(TREE, RULER, () => timeline.paintLanes(painter, { view, rows, width, height, topOf: () => 0 }));
  move(TREE, 0, () => drawRuler(painter, { timeline, view, width, height: RULER }));
  move(0, RULER, () => {
    painter.rect(0, 0, TREE, height, painter.colors.surface);
    for (const row of rows) {
      painter.text(row.unit === undefined ? 6 : 16, row.y + Math.min(row.height, 24) / 2, shortened(row.label), painter.colors.text);
      painter.rect(0, row.y + row.height - 1, TREE, 1, painter.colors.grid);
    }
  });
}

function shortened(text) {
  return text.length > NAME ? `${text.slice(0, NAME - 1)}…` : text;
}
