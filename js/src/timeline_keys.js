// The keys of a timeline; those of MindStudio Insight and Perfetto where they agree.

const PAN = 0.15;
const ZOOM = 1.6;

/** Does what the key of `event` stands for; false if it stands for nothing. */
export function actOn(timeline, event) {
  const action = event.target === timeline.canvas ? ACTIONS[event.key.length === 1 ? event.key.toLowerCase() : event.key] : event.key === "/" && ACTIONS["/"];
  if (!action || !timeline.setup) return false;
  action(timeline, event);
  return true;
}

const ACTIONS = {
  w: (timeline) => timeline.zoom(1 / ZOOM),
  s: (timeline) => timeline.zoom(ZOOM),
  a: (timeline) => timeline.pan(-PAN),
  d: (timeline) => timeline.pan(PAN),
  f: (timeline) => timeline.fit(),
  0: (timeline) => timeline.reset(),
  Home: (timeline) => timeline.reset(),
  "/": (timeline) => timeline.find.focus(),
  Enter: (timeline, event) => timeline.next(event.shiftKey ? -1 : 1),
  Escape: (timeline) => (timeline.selected || timeline.range || timeline.search.text ? timeline.clear() : timeline.fillWindow(false)),
  x: (timeline) => timeline.fillWindow(),
  ArrowRight: (timeline) => timeline.walk("lane", 1),
  ArrowLeft: (timeline) => timeline.walk("lane", -1),
  ArrowDown: (timeline) => timeline.changeLane(1),
  ArrowUp: (timeline) => timeline.changeLane(-1),
  n: (timeline, event) => timeline.walk("name", event.shiftKey ? -1 : 1),
  b: (timeline) => timeline.walk("name", -1),
  l: (timeline) => timeline.walk("longest"),
  m: (timeline) => timeline.details.askMark(),
  p: (timeline) => timeline.selected && timeline.rows.pin(timeline.selected.unit),
  r: (timeline) => timeline.selected && timeline.selectRange(...timeline.commonSpan(timeline.selected)),
  v: (timeline) => timeline.selectRange(timeline.view.start, timeline.view.start + timeline.view.span),
};
