// The chart library of all panels: Vega-Lite specifications to Vega views, with tooltips. Loaded once a page.
export { changeset, loader, parse, View } from "vega";
export { compile } from "vega-lite";
export { Handler as TooltipHandler } from "vega-tooltip";
