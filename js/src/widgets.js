// The views of all widgets, loaded once a page; the trait `kind` says which one a widget is drawn by.
import { renderPanel } from "./panel.js";
import { renderHeader, renderLinks } from "./simple.js";
import { renderTimeline } from "./timeline.js";

const renderers = {
  panel: renderPanel,
  header: renderHeader,
  links: renderLinks,
  timeline: renderTimeline,
};

export function render(context) {
  return renderers[context.model.get("kind")](context);
}
