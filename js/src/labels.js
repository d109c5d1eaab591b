// The words that a drawing writes beside its marks. Where marks are near each other, the later one's words give way: its tooltip and the
// table of the chart have them.

// Words up to which a look at each pair takes less time than a drawing.
const MOST = 400;

/** Hides in the drawing of `view` the words of marks that stand over a number of an axis or over words before them. */
export function hideOverlapping(view) {
  const { root } = view.scenegraph();
  if (!root) return; // nothing is drawn yet
  const all = texts(root).filter(({ item }) => item._svg && item._svg.textContent.trim());
  const words = all.filter(({ role }) => role === "mark");
  if (words.length === 0 || words.length > MOST) return;
  const shown = all.filter(({ role, item }) => role === "axis-label" && item.opacity !== 0);
  for (const one of words) {
    const node = one.item._svg;
    const hidden = shown.some((other) => over(one.box, other.box) && node.textContent !== other.item._svg.textContent);
    const visibility = hidden ? "hidden" : "";
    if (node.style.visibility !== visibility) node.style.visibility = visibility;
    if (!hidden) shown.push(one);
  }
}

/** The texts under `mark` with their boxes as Vega has measured them: to ask the browser would lay out the whole page, at each redraw. */
function texts(mark, x = 0, y = 0) {
  if (mark.marktype === "text") {
    return mark.items.map((item) => {
      const { x1, x2, y1, y2 } = item.bounds;
      return { item, role: mark.role, box: { left: x1 + x, right: x2 + x, top: y1 + y, bottom: y2 + y } };
    });
  }
  if (mark.marktype !== "group") return [];
  return mark.items.flatMap((group) => group.items.flatMap((each) => texts(each, x + (group.x ?? 0), y + (group.y ?? 0))));
}

function over(one, other) {
  const wide = Math.min(one.right, other.right) - Math.max(one.left, other.left);
  return wide > 1 && Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top) > 2;
}
