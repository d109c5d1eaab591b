// The one module that every perfkit widget loads; the trait `kind` says which view it draws.
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

export default {
  render(context) {
    return renderers[context.model.get("kind")](context);
  },
};
