// Tooltips, written for the mark that the pointer is on: to write those of all marks takes a fifth of drawing them.

const SET = "tooltip"; // of what Vega encodes when it is asked to

/** `compiled` Vega whose marks have `true` for a tooltip until theirs is written. */
export function writtenLate(compiled) {
  for (const mark of compiled.marks ?? []) {
    const update = mark.encode?.update;
    if (update?.tooltip) {
      mark.encode[SET] = { tooltip: update.tooltip };
      update.tooltip = { value: true };
    }
    writtenLate(mark);
  }
  return compiled;
}

/** Shows the tooltips of such a `view`, as `told` says them. */
export function showTips(vega, view, told) {
  const tips = new vega.TooltipHandler({ theme: "custom" });
  let newest = null;
  view.tooltip(async (handler, event, item, shown) => {
    newest = event;
    if (shown === true) await view.pulse(item.mark.source, view.changeset().encode(item, SET)).runAsync();
    if (newest === event) tips.call(handler, event, item, told(shown && item.tooltip));
  });
}
