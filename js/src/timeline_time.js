// Times of a timeline: offsets in ns from the base of the run, as text and as the ticks of a ruler.
import { t } from "./texts.js";

const UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
const THIN = "\u2009";

/** A duration with at most `digits` significant digits, exact below 1 µs. */
export function formatNs(ns, digits = 4) {
  const size = Math.abs(ns);
  const [unit, name] = UNITS.find(([scale]) => size >= scale) ?? UNITS.at(-1);
  return `${grouped(Number((ns / unit).toPrecision(digits)))}\u00a0${name}`;
}

/** A moment to the last ns, in the largest unit that it reaches. */
export function exactNs(ns) {
  const whole = Math.round(ns);
  const [unit, name] = UNITS.find(([scale]) => Math.abs(whole) >= scale) ?? UNITS.at(-1);
  const decimals = Math.log10(unit);
  return `${grouped(decimals ? (whole / unit).toFixed(decimals) : whole)}\u00a0${name}`;
}

/** Digits in groups of three, on both sides of the point. */
export function grouped(number) {
  const [whole, fraction] = String(number).split(".");
  const left = whole.replace(/\B(?=(\d{3})+$)/g, THIN);
  return fraction ? `${left}.${fraction.replace(/(\d{3})(?=\d)/g, `$1${THIN}`)}` : left;
}

/** A size with a binary prefix. */
export function formatBytes(bytes) {
  const [size, name] = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]].find(([least]) => Math.abs(bytes) >= least) ?? [1, "B"];
  return `${grouped(Number((bytes / size).toPrecision(4)))}\u00a0${name}`;
}

/** How many slices one stands for, as the kernel says it. */
export function slicesText(count) {
  return t("{0} slices", grouped(count));
}

/** Ticks of a ruler between two offsets: {at, text}, at least `minPixels` apart. */
export function ticks(start, span, width, origin, minPixels = 120) {
  const least = (span / Math.max(width, 1)) * minPixels;
  const power = 10 ** Math.max(0, Math.floor(Math.log10(least)));
  const step = Math.max(1, [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= least) ?? 10 * power);
  const found = [];
  for (let index = Math.ceil((start - origin) / step); ; index += 1) {
    const at = origin + index * step;
    if (at > start + span) return found;
    found.push({ at, text: tickText(index * step, step, span) });
  }
}

function tickText(ns, step, span) {
  const largest = Math.max(Math.abs(ns), span);
  const [unit, name] = UNITS.find(([scale]) => largest >= scale) ?? UNITS.at(-1);
  const decimals = Math.max(0, Math.round(Math.log10(unit)) - Math.floor(Math.log10(step)));
  return `${grouped((ns / unit).toFixed(decimals))} ${name}`;
}

/** The exact moment of an offset as text: base and offset are added as integers. */
export function absolute(baseNs, offset) {
  return (BigInt(baseNs) + BigInt(Math.round(offset))).toString();
}

/** The offset of a moment given as text; null if it is none. */
export function relative(baseNs, text) {
  return /^-?\d{1,20}$/.test(text ?? "") ? Number(BigInt(text) - BigInt(baseNs)) : null;
}
