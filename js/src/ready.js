// Tells the page when its views are drawn: `data-perfkit-ready` on the root element, read by tests and by the loading bar.

// Every widget has its own copy of this module; what they wait for is common to the page.
globalThis.__perfkitReady ??= { waiting: new Set(), drawn: new Set(), timer: 0, led: false };
const page = globalThis.__perfkitReady;

/** Marks the view `key` as not drawn yet. */
export function begin(key) {
  page.waiting.add(key);
  document.dispatchEvent(new CustomEvent("perfkit:begun"));
  document.documentElement.removeAttribute("data-perfkit-ready");
  schedule();
}

/** Marks the view `key` as drawn (or gone). */
export function finish(key) {
  page.waiting.delete(key);
  page.drawn.add(key);
  schedule();
}

function schedule() {
  clearTimeout(page.timer);
  page.timer = setTimeout(check, 30);
}

// The app's template counts the widgets that the page will have; elsewhere only those that have begun are known.
function check() {
  const expected = window.perfkitPage?.expectedViews?.() ?? 0;
  if (page.waiting.size > 0 || page.drawn.size < expected) {
    page.timer = setTimeout(check, 100);
    return;
  }
  document.documentElement.setAttribute("data-perfkit-ready", String(page.drawn.size));
  document.dispatchEvent(new CustomEvent("perfkit:ready"));
  lead();
}

/** Brings the step that the address names into sight, once: a link leads to what it is about (`#at=where-the-step-went`). */
function lead() {
  const name = new URLSearchParams(location.hash.slice(1)).get("at");
  if (page.led || !name) return;
  page.led = true;
  document.querySelector(`[data-panel="${CSS.escape(name)}"]`)?.scrollIntoView();
}
