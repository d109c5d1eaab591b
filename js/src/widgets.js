// The views of all widgets, loaded once a page; the trait `kind` says which one a widget is drawn by.
import { el } from "./dom.js";
import { renderPanel } from "./panel.js";
import { begin, finish } from "./ready.js";
import { renderHeader, renderLinks } from "./simple.js";
import { t } from "./texts.js";
import { renderTimeline } from "./timeline.js";

const renderers = {
  panel: renderPanel,
  header: renderHeader,
  links: renderLinks,
  timeline: renderTimeline,
};

export function render(context) {
  return (renderers[context.model.get("kind")] ?? renderForeign)(context);
}

/** The app loads no views but its own. */
function renderForeign({ el: host }) {
  host.replaceChildren(el("p", { class: "pk pk-status" }, t("This widget is not one of perfkit's: JupyterLab shows it.")));
  begin(host);
  finish(host);
}
