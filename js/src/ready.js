// Tells the page when its views are drawn: `data-perfkit-ready` on the root element, read by tests and by the loading bar.

const waiting = new Set();
const drawn = new Set();
let timer = 0;

/** Marks the view `key` as not drawn yet. */
export function begin(key) {
  waiting.add(key);
  document.documentElement.removeAttribute("data-perfkit-ready");
  schedule();
}

/** Marks the view `key` as drawn (or gone). */
export function finish(key) {
  waiting.delete(key);
  drawn.add(key);
  schedule();
}

function schedule() {
  clearTimeout(timer);
  timer = setTimeout(check, 30);
}

// The app's template counts the widgets that the page will have; elsewhere only those that have begun are known.
function check() {
  const expected = window.perfkitPage?.expectedViews?.() ?? 0;
  if (waiting.size > 0 || drawn.size < expected) {
    timer = setTimeout(check, 100);
    return;
  }
  document.documentElement.setAttribute("data-perfkit-ready", String(drawn.size));
  document.dispatchEvent(new CustomEvent("perfkit:ready"));
}
