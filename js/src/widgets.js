// The views of all widgets, loaded once a page; the trait `kind` says which one a widget is drawn by.
import { renderPanel } from "./panel.js";
import { renderChart, renderHeader, renderLinks, renderTable, renderText } from "./simple.js";
import { renderTimeline } from "./timeline.js";

const renderers = {
  panel: renderPanel,
  chart: renderChart,
  table: renderTable,
  text: renderText,
  header: renderHeader,
  links: renderLinks,
  timeline: renderTimeline,
};

export function render(context) {
  return renderers[context.model.get("kind")](context);
}
