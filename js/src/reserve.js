// The room that a chart will take, as far as its specification says it: kept free until it is drawn, so that nothing below it jumps.
import { encodings } from "./narrow.js";

const AXIS = 46; // pixels of an axis with its numbers and title
const LEGEND = 28;

/** Pixels of the drawing of `spec` with the rows of `datasets`; 0 if it does not say. */
export function expectedHeight(spec, datasets) {
  const { height } = spec;
  const all = encodings(spec);
  const field = all.find(({ y }) => y?.field)?.y.field;
  const names = new Set(Object.values(datasets).flatMap((columns) => columns[field] ?? []));
  const inside = typeof height === "number" ? height : (height?.step ?? 0) * names.size;
  const legend = all.some(({ color }) => color?.field && color.legend !== null);
  return inside && inside + AXIS + (legend ? LEGEND : 0);
}
