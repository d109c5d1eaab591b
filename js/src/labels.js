// The words that a drawing writes beside its marks. Where marks are near each other, the later one's words give way: its tooltip and the
// table of the chart have them.

// Words up to which a look at each pair takes less time than a drawing.
const MOST = 400;

/** Hides in `plot` the words of marks that stand over a number of an axis or over words before them. */
export function hideOverlapping(plot) {
  const words = [...plot.querySelectorAll(".role-mark.mark-text text")].filter((word) => word.textContent.trim());
  if (words.length > MOST) return;
  for (const word of words) word.style.visibility = "";
  const placed = (word) => ({ word, box: word.getBoundingClientRect() });
  const shown = [...plot.querySelectorAll(".role-axis-label text")].filter((word) => word.getAttribute("opacity") !== "0").map(placed);
  for (const one of words.map(placed)) {
    if (shown.some((other) => over(one.box, other.box) && one.word.textContent !== other.word.textContent)) one.word.style.visibility = "hidden";
    else shown.push(one);
  }
}

// The boxes of words are a little higher than their letters.
function over(one, other) {
  const wide = Math.min(one.right, other.right) - Math.max(one.left, other.left);
  return wide > 1 && Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top) > 4;
}
