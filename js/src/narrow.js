// A chart in a narrow place, as on a phone: long names stand over their bars instead of beside them, where they would leave the bars no
// room; legends stand one below the other, and a matrix has cells that fit.

// Letters; names up to here leave their bars room.
const SHORT_NAME = 14;

// Pixels from name to name: half of them are its bar.
const LINE = 40;

// The part of a chart that short names may take.
const NAMES_SHARE = 0.4;

// Pixels of the labels beside a matrix, and of a cell in which a number can be read.
const BESIDE_A_MATRIX = 60;
const LEAST_CELL = 24;

/** `own` configuration of a chart that is `width` pixels wide, with `columns` of entries in its legends. */
export function narrowConfig(own = {}, width, columns) {
  return {
    ...foldedConfig(own, width, columns),
    axis: { ...own.axis, labelLimit: Math.round(NAMES_SHARE * width) },
    axisX: { ...own.axisX, titleAnchor: "end", labelBound: true },
  };
}

/** `own` configuration with legends one below the other, of `columns` each: in one line they would be cut off at the right. */
export function foldedConfig(own = {}, width, columns) {
  const layout = { top: { direction: "vertical", bounds: "full", margin: 6 } };
  return { ...own, legend: { ...own.legend, columns, layout, labelLimit: width - 28 } };
}

/** `spec` whose legends have the columns that the configuration says. */
export function folded(spec) {
  const free = ([channel, given]) => [channel, given?.legend ? { ...given, legend: { ...given.legend, columns: undefined } } : given];
  const { encoding, layer } = spec;
  return { ...spec, ...(layer && { layer: layer.map(folded) }), ...(encoding && { encoding: Object.fromEntries(Object.entries(encoding).map(free)) }) };
}

/** `spec` with the long names of its bars over them, and legends that take as many lines as they need. */
export function narrowed(spec, datasets, width) {
  const inside = (part) => {
    const { encoding, layer } = part;
    return { ...part, ...(layer && { layer: layer.map(inside) }), ...(encoding && { encoding: narrowChannels(encoding, names, width) }) };
  };
  const names = longNames(spec, datasets);
  const drawn = fitted(inside(folded(spec)), datasets, width);
  const step = names.size && !offsets(spec) && spec.height?.step;
  return step ? { ...drawn, height: { ...spec.height, step: Math.max(step, LINE) } } : drawn;
}

/** A matrix as wide as its place, where its cells stay large enough for that. */
function fitted(spec, datasets, width) {
  const { field } = encodings(spec).find(({ x }) => x?.field)?.x ?? {};
  const columns = new Set(Object.values(datasets).flatMap((values) => values[field] ?? [])).size;
  const room = (width - BESIDE_A_MATRIX) / columns;
  return spec.width?.step > room && room >= LEAST_CELL ? { ...spec, width: "container" } : spec;
}

function narrowChannels(encoding, names, width) {
  const changed = (channel, given) => (channel === "y" && names.has(given.field) ? over(given, width) : given);
  return Object.fromEntries(Object.entries(encoding).map(([channel, given]) => [channel, changed(channel, given)]));
}

/** A channel of names whose labels stand over its bars. */
function over(channel, width) {
  const axis = {
    ...channel.axis, ticks: false, labelAlign: "left", labelBaseline: "bottom", labelLimit: width - 16, labelPadding: -2,
    labelOffset: { expr: "-bandwidth('y') / 2 - 1" },
  };
  return { ...channel, axis, scale: { ...channel.scale, paddingInner: 0.5, paddingOuter: 0.55 } };
}

/** The fields of `spec` that are drawn one below the other by names of which one is long. */
function longNames(spec, datasets) {
  const fields = encodings(spec).map(({ y }) => y).filter((y) => y?.type === "nominal" && y.title === null && y.axis !== null);
  const named = (field) => Object.values(datasets).flatMap((columns) => columns[field] ?? []);
  const long = ({ field }) => spec.height?.step && named(field).some((name) => String(name).length > SHORT_NAME);
  return new Set(fields.filter(long).map(({ field }) => field));
}

/** The channels of `part` and of all its layers. */
export function encodings(part) {
  return [part.encoding ?? {}, ...(part.layer ?? []).flatMap(encodings)];
}

function offsets(spec) {
  return encodings(spec).some(({ yOffset }) => yOffset);
}
