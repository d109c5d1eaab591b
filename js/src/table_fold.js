// The columns of a table that is wider than its place. Sentences first take more lines; what still finds no room is folded into a line
// below each row, which a button at the row's end shows, as do columns that stand aside. On paper all columns stand.
import { el } from "./dom.js";

// Pixels of the column of buttons.
const BUTTON = 40;

/** Which of `columns`, `[{numeric, short, aside}]` with `widths` in pixels, find room in `room`: those that name a row, then figures, then
    words, then sentences, of each kind as many of the first as fit; none that stand aside. */
export function columnsThatFit(columns, widths, room) {
  const names = (at) => at === 0 || (at === 1 && columns[0].numeric && !columns[1].numeric);
  const kind = (at) => (names(at) ? 0 : columns[at].numeric ? 1 : columns[at].short ? 2 : 3);
  const kept = [];
  let left = room - BUTTON;
  for (const wanted of [0, 1, 2, 3]) {
    for (const at of columns.keys()) {
      if (kind(at) !== wanted || columns[at].aside) continue;
      if (at && widths[at] > left) break;
      kept.push(at);
      left -= widths[at];
    }
  }
  return kept;
}

/** Folds the columns of `table`, whose rows are `rows`, that find no room in `scroll`. `details(row, folded)` makes the button at the end
    of a row, given the places of the folded columns. */
export function fold(scroll, table, columns, rows, details) {
  unfold(table);
  const room = scroll.clientWidth;
  const fits = () => table.offsetWidth <= room + 1;
  const heads = [...table.tHead.rows[0].cells];
  const shown = [table.tHead.rows[0], ...rows];
  const hide = (at, how = "pk-folded") => shown.forEach((row) => row.cells[at].classList.add(how));
  columns.forEach((column, at) => column.aside && hide(at, "pk-later"));
  if (columns.length < 2 || !room || fits()) return;
  table.classList.add("pk-tight");
  if (fits()) return;
  const kept = columnsThatFit(columns, heads.map((cell) => cell.offsetWidth), room);
  shown.forEach((row) => row.append(el("td", { class: "pk-more-cell" })));
  heads.forEach((_, at) => kept.includes(at) || hide(at));
  while (kept.length > 1 && !fits()) hide(kept.pop()); // what is left stands closer than it did before
  const folded = heads.map((_, at) => at).filter((at) => !kept.includes(at));
  rows.forEach((row) => row.lastElementChild.append(details(row, folded)));
}

/** Shows all columns of `table`, and no lines below its rows. */
export function unfold(table) {
  table.classList.remove("pk-tight");
  table.querySelectorAll(".pk-folded, .pk-later").forEach((cell) => cell.classList.remove("pk-folded", "pk-later"));
  table.querySelectorAll(".pk-more-cell, .pk-detail").forEach((node) => node.remove());
}
