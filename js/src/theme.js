// Colours of axes, grid and text, taken from the page's CSS variables, so that light and dark need one specification.

/** The colours and the font of `node`'s theme. */
export function colorsOf(node) {
  const style = getComputedStyle(node.isConnected ? node : document.documentElement);
  const color = (name, fallback) => style.getPropertyValue(`--pk-${name}`).trim() || fallback;
  return {
    text: color("text", TEXT), muted: color("muted", MUTED), ground: color("surface", "#ffffff"), grid: color("grid", "#e4e9ef"),
    font: style.fontFamily || "system-ui, sans-serif",
  };
}

/** The chart configuration in these colours, over which the specification's own wins. */
export function vegaConfig({ text, muted, grid, font }, own = {}) {
  return merge(
    {
      background: "transparent",
      font,
      locale: { number: { decimal: ".", thousands: "\u2009", grouping: [3], currency: ["", ""] } }, // as in sentences and tables
      // A chart is one picture with a sentence and a table beside it; words for each mark would be heard by nobody, and cost time.
      aria: false,
      mark: { aria: false },
      axis: {
        labelColor: muted, titleColor: muted, titleFontWeight: 500, gridColor: grid, domainColor: grid, tickColor: grid,
        labelFontSize: 12, titleFontSize: 12, labelLimit: 260, titlePadding: 10,
      },
      axisXQuantitative: { tickCount: { signal: "ceil(width / 80)" } }, // twice as many lines tell no more
      axisX: { labelSeparation: 14 }, // the last number of an axis ends at its end, which is nearer to the one before
      range: { category: CATEGORIES },
      legend: {
        orient: "top", labelColor: text, titleColor: muted, titleFontWeight: 500, labelFontSize: 12, titleFontSize: 12, labelLimit: 260,
        symbolBaseFillColor: muted, symbolBaseStrokeColor: muted, // of shapes and sizes, which have no colour of their own
      },
      title: { color: text, subtitleColor: muted, fontSize: 13, fontWeight: 600, subtitleFontSize: 12, anchor: "start" },
      header: { labelColor: muted, titleColor: muted },
      text: { color: text },
      rule: { color: muted },
      view: { stroke: null },
    },
    own,
  );
}

// Okabe and Ito, in the order of charts/_theme.py.
const CATEGORIES = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999"];

// The colours of charts/theme.py that stand for the page's own.
const TEXT = "#1b2733";
const MUTED = "#52606d";
const GROUND = "#fdfefe";

/** `spec` with the stand-in colours replaced by those of the page. */
export function themed(spec, { text, muted, ground }) {
  const colors = { [TEXT]: text, [MUTED]: muted, [GROUND]: ground };
  return JSON.parse(JSON.stringify(spec), (key, value) => (typeof value === "string" && Object.hasOwn(colors, value) ? colors[value] : value));
}

/** Calls `listener` when the page changes between light and dark; returns the function that stops it. */
export function onThemeChange(listener) {
  let last = signature();
  const check = () => {
    const now = signature();
    if (now === last) return;
    last = now;
    listener();
  };
  const observer = new MutationObserver(check);
  observer.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  observer.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light"] });
  const media = matchMedia("(prefers-color-scheme: dark)");
  media.addEventListener("change", check);
  return () => {
    observer.disconnect();
    media.removeEventListener("change", check);
  };
}

function signature() {
  return getComputedStyle(document.documentElement).getPropertyValue("--pk-text") + (document.body.dataset.jpThemeLight ?? "");
}

function merge(base, over) {
  const result = { ...base };
  for (const [key, value] of Object.entries(over ?? {})) {
    const both = value && typeof value === "object" && !Array.isArray(value) && result[key] && typeof result[key] === "object";
    result[key] = both ? merge(result[key], value) : value;
  }
  return result;
}
