// A table: sticky header, numbers to the right, sortable columns, rows that can be chosen by mouse or keyboard, CSV and copy. One that
// is higher than its place says at its end how many rows it has, and shows them all when asked; one that is wider folds columns. Columns
// that stand aside are shown by a button over the table, and a folded table is one line that opens.
import { csv, download, el, freshId } from "./dom.js";
import { fold } from "./table_fold.js";
import { t } from "./texts.js";

/** Puts a text into a cell, with a link where there is one to a page beside this one; no other address is followed. A name that is
    shown by its ends is whole in its title. */
function fill(cell, { text: texts, values, links, signs }, row) {
  const [text, href, sign] = [texts[row], links?.[row], signs?.[row]];
  if (typeof values?.[row] === "string" && text?.includes("…") && values[row] !== text) cell.title = values[row];
  else cell.removeAttribute("title");
  if (sign && text) return cell.replaceChildren(el("span", { class: "pk-sign", "data-sign": sign }, text));
  cell.replaceChildren(...(href && /^\w+(?:\.ipynb)?(?:#|$)/.test(href) && text ? [el("a", { href }, text)] : parted(text ?? "")));
}

// A name without spaces that is longer goes on in the next line behind a slash, dot or underscore; a number stays whole.
const LONG_WORD = 14;
const ENDS = /(?<=[/_])(?=\w)|(?<=\.)(?=[^\W\d])|(?<=\D\.)(?=\d)/;
const FEW_ROWS_PX = 110;
// On a phone so few rows show what is folded of them: a table of three findings without their sentences says nothing.
const OPEN_ROWS = 4;
const PHONE = "(max-width: 480px)";

/** A text as nodes between which a line may end. */
function parted(text) {
  return /\S/.test(text) && longestWord([text]) > LONG_WORD ? text.split(ENDS).flatMap((part) => [part, el("wbr")]) : [text];
}

export class Table {
  /** `onRow` gets the index of the chosen row in the order in which the kernel sent the rows. */
  constructor(onRow = () => {}) {
    this.onRow = onRow;
    this.sort = null;
    this.chosen = new Set();
    this.opened = new Set();
    this.root = el("div", { class: "pk-table" });
  }

  /** `content`: {title, label, columns: [{label, unit, text, values, numeric, aside}], look, total, selectable, chosen, several, name}. */
  update(content) {
    const before = this.content;
    this.content = content;
    if (content.chosen) this.chosen = new Set(content.chosen);
    if (before && !this.sort && shape(before) === shape(content)) {
      this.patch(before);
      this.mark();
      return;
    }
    if (this.sort && content.columns[this.sort.column]?.label !== before?.columns[this.sort.column].label) this.sort = null;
    this.draw();
  }

  // A table in which only the words of some cells differ keeps its rows, their focus and its place on the page.
  patch(before) {
    this.content.columns.forEach((column, at) => {
      column.text.forEach((cell, row) => {
        if (cell !== before.columns[at].text[row] || column.links?.[row] || column.values?.[row] !== before.columns[at].values?.[row])
          fill(this.rows[row].cells[at], column, row);
      });
    });
    for (const below of this.body.querySelectorAll(".pk-detail")) below.replaceChildren(this.lines(Number(below.previousElementSibling.dataset.row)));
  }

  length() {
    return this.content.columns[0]?.text.length ?? 0;
  }

  draw() {
    const { content } = this;
    const head = el("tr", {}, content.columns.map((column, index) => this.headCell(column, index)));
    this.rows = this.order().map((row) => this.row(row));
    this.body = el("tbody", {}, this.rows);
    const label = content.label || content.title || "table";
    const near = nearness(content.columns.filter((column) => this.every || !column.aside)); // until its place is known
    const table = el("table", { "aria-label": label, class: near }, el("thead", {}, head), this.body);
    const shown = this.length();
    const more = content.total > shown ? t("The first {0} of {1} rows are shown.", shown, content.total) : "";
    const none = shown === 0 ? el("p", { class: "pk-note" }, t("No rows.")) : null;
    this.root.classList.toggle("pk-tiles", content.look === "tiles");
    this.root.classList.toggle("pk-shut", content.look === "folded" && !this.open);
    const scroll = el("div", { class: "pk-scroll", tabindex: "0", role: "group", "aria-label": label }, table);
    this.root.replaceChildren(...[this.bar(), this.sensor(scroll, table), scroll, none, this.foot(scroll, table, more)].filter(Boolean));
  }

  /** What has the width of the table's place and no height: when it changes, or the words of the table do, columns are folded anew. */
  sensor(scroll, table) {
    const node = el("div", { class: "pk-width" });
    const { columns, look } = this.content;
    this.fit = () => {
      if (look === "tiles") return;
      const all = this.every || hasRoom(columns, scroll.clientWidth);
      const kinds = columns.map((column) => ({ numeric: column.numeric, short: isShort(column), aside: column.aside && !all }));
      table.className = nearness(columns.filter((column) => all || !column.aside));
      table.classList.toggle("pk-spread", scroll.clientWidth >= SPREAD_PX);
      fold(scroll, table, kinds, this.rows, (row, folded) => this.more(row, folded));
      if (this.turn) this.turn.hidden = !this.every && (all || table.classList.contains("pk-tight")); // each row has a button then
    };
    this.width?.disconnect();
    this.width = new ResizeObserver(this.fit);
    this.width.observe(node);
    return node;
  }

  /** The button that shows what is folded of a row, below it; of a table's few rows it is shown. */
  more(row, folded) {
    this.folded = folded;
    const index = Number(row.dataset.row);
    const id = freshId("row");
    const button = el("button", { type: "button", class: "pk-more", "aria-controls": id, "aria-label": t("More of this row") });
    const draw = () => {
      const open = this.opened.has(index);
      button.setAttribute("aria-expanded", String(open));
      if (row.nextElementSibling?.id === id) row.nextElementSibling.remove();
      if (open) row.after(el("tr", { class: "pk-detail", id }, this.lines(index)));
    };
    button.addEventListener("click", (event) => {
      event.stopPropagation();
      this.turned = true; // from now on what is open is what the visitor opened
      if (!this.opened.delete(index)) this.opened.add(index);
      draw();
    });
    const few = this.rows.length === 1 || (this.rows.length <= OPEN_ROWS && matchMedia(PHONE).matches);
    if (few && !this.turned) this.opened.add(index);
    draw();
    return button;
  }

  /** The folded columns of a row, one a line. */
  lines(index) {
    const { columns } = this.content;
    const shown = this.folded.map((at) => columns[at]).filter((column) => column.text[index]);
    const line = (column) => {
      const value = el("dd", {});
      fill(value, column, index);
      return [el("dt", {}, heading(column)), value];
    };
    return el("td", { colSpan: columns.length - this.folded.length + 1 }, el("dl", {}, shown.flatMap(line)));
  }

  /** Below a table that its place cuts off: how many rows there are, and the way to all of them. */
  foot(scroll, table, more) {
    const turn = el("button", { type: "button", class: "pk-quiet", "aria-pressed": String(Boolean(this.whole)) });
    const foot = el("p", { class: "pk-note pk-foot" }, el("span", {}, more), turn);
    const draw = () => {
      const { whole = false } = this;
      scroll.classList.toggle("pk-whole", whole);
      scroll.style.maxHeight = "";
      const opened = [...this.body.querySelectorAll(".pk-detail")].reduce((sum, row) => sum + row.offsetHeight, 0);
      const hidden = scroll.scrollHeight - scroll.clientHeight - opened; // what opens in a table does not shut it
      if (!whole && hidden + opened > 1) {
        // A few rows are not worth hiding, and none is cut through.
        const ends = this.rows.map((row) => row.offsetTop + row.offsetHeight).filter((end) => end <= scroll.clientHeight + 1);
        if (hidden <= FEW_ROWS_PX) scroll.classList.add("pk-whole");
        else if (ends.length) scroll.style.maxHeight = `${ends.at(-1)}px`;
      }
      turn.setAttribute("aria-pressed", String(whole));
      turn.textContent = whole ? t("Fewer rows") : t("All {0} rows", this.length());
      turn.hidden = !whole && scroll.scrollHeight <= scroll.clientHeight + 1;
      foot.hidden = turn.hidden && !more;
      if (scroll.scrollWidth > scroll.clientWidth + 1) requestAnimationFrame(this.fit);
    };
    turn.addEventListener("click", () => {
      this.whole = !this.whole;
      draw();
    });
    this.watch?.disconnect();
    this.watch = new ResizeObserver(draw);
    this.watch.observe(table);
    draw();
    return foot;
  }

  columns() {
    return Object.fromEntries(this.content.columns.map((column) => [heading(column), column.values ?? column.text]));
  }

  bar() {
    const { title, name, look, columns, total } = this.content;
    this.turn = columns.some((column) => column.aside) && this.switch("every", this.every ? t("Fewer columns") : t("All {0} columns", columns.length));
    if (title === undefined) return null;
    const words = [title, look === "folded" && total > 1 ? el("span", { class: "pk-unit" }, ` · ${t("{0} rows", total)}`) : null];
    return el("div", { class: "pk-chart-head" },
      el("span", { class: "pk-chart-title" }, look === "folded" ? [this.switch("open", ...words), el("span", { class: "pk-paper" }, title)] : words),
      el("span", { class: "pk-tools" },
        this.turn,
        el("button", { type: "button", class: "pk-quiet", title: t("Download this table"),
          onclick: () => download(`${name || "table"}.csv`, csv(this.columns()), "text/csv") }, "CSV")));
  }

  /** A button that turns `what` of the table on and off, and keeps the focus. */
  switch(what, ...words) {
    const kind = what === "open" ? "pk-fold" : "pk-quiet";
    const turn = () => {
      this[what] = !this[what];
      this.draw();
      this.root.querySelector(`.pk-chart-head .${kind}`).focus();
    };
    return el("button", { type: "button", class: kind, "aria-expanded": String(Boolean(this[what])), onclick: turn }, ...words);
  }

  headCell(column, index) {
    const sorted = this.sort?.column === index ? this.sort.direction : null;
    const button = el("button", { type: "button", class: "pk-sort", onclick: () => this.sortBy(index) },
      column.label, column.unit ? el("span", { class: "pk-unit" }, " ", parted(column.unit)) : null,
      sorted ? el("span", { "aria-hidden": "true" }, sorted > 0 ? " ▲" : " ▼") : null);
    return el("th", {
      scope: "col",
      class: column.numeric ? "pk-number" : null,
      style: `--pk-least: ${leastWidth(column) + 2}ch`,
      "aria-sort": sorted ? (sorted > 0 ? "ascending" : "descending") : "none",
    }, button);
  }

  row(index) {
    const cells = this.content.columns.map((column) => el("td", { class: column.numeric ? "pk-number" : isShort(column) ? "pk-short" : null }));
    cells.forEach((cell, at) => fill(cell, this.content.columns[at], index));
    const row = el("tr", { "data-row": String(index) }, cells);
    if (!this.content.selectable) return row;
    row.tabIndex = 0;
    row.classList.add("pk-selectable");
    row.setAttribute("aria-selected", String(this.chosen.has(index)));
    row.addEventListener("click", (event) => event.target.closest("a") || this.choose(index));
    row.addEventListener("keydown", (event) => this.onKey(event, row, index));
    return row;
  }

  onKey(event, row, index) {
    if (event.target !== row) return; // a link in it
    if (event.key === "Enter" || event.key === " ") this.choose(index);
    else if (event.key === "ArrowDown") this.rows[this.rows.indexOf(row) + 1]?.focus();
    else if (event.key === "ArrowUp") this.rows[this.rows.indexOf(row) - 1]?.focus();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  choose(index) {
    const others = this.content.several ? [...this.chosen].filter((one) => one !== index) : [];
    this.chosen = new Set(this.content.several && this.chosen.has(index) ? others : [index, ...others].slice(0, this.content.several || 1));
    this.mark();
    this.onRow(index);
  }

  mark() {
    if (!this.content.selectable) return;
    for (const row of this.rows) row.setAttribute("aria-selected", String(this.chosen.has(Number(row.dataset.row))));
  }

  sortBy(column) {
    const direction = this.sort?.column === column ? -this.sort.direction : this.content.columns[column].numeric ? -1 : 1;
    this.sort = { column, direction };
    this.draw();
    this.root.querySelectorAll(".pk-sort")[column]?.focus();
  }

  order() {
    const rows = Array.from({ length: this.length() }, (_, index) => index);
    if (!this.sort) return rows;
    const { column, direction } = this.sort;
    const values = this.content.columns[column].values ?? this.content.columns[column].text;
    return rows.sort((a, b) => direction * compare(values[a], values[b]));
  }
}

// All of a table but the words in its cells.
function shape({ columns, chosen, ...rest }) {
  const heads = columns.map((column) => [column.label, column.unit, column.numeric, column.text.length, column.aside, isShort(column), leastWidth(column)]);
  return JSON.stringify([rest, heads]);
}

// Names of operators have no spaces: words up to MAX_WORD stay whole, longer ones may break.
const MAX_WORD = 24;

// Letters of the widest column of sentences, and the lines that a cell or a heading may take where a table is wider than its place.
const MAX_SENTENCE = 40;
const CELL_LINES = 4;
const HEADING_LINES = 2;

/** Letters that a column needs so that neither its words nor its rows become columns of their own. */
function leastWidth(column) {
  const heading = Math.ceil(`${column.label} ${column.unit ?? ""}`.length / HEADING_LINES);
  if (column.numeric) return heading;
  const longest = Math.max(0, ...column.text.slice(0, 200).map((text) => text.length));
  return Math.max(heading, Math.min(MAX_WORD, longestWord(column.text)), Math.min(MAX_SENTENCE, Math.ceil(longest / CELL_LINES)));
}

function longestWord(texts) {
  return Math.max(0, ...texts.slice(0, 200).flatMap((text) => text.split(/\s+/).map((word) => word.length)));
}

function heading(column) {
  return column.unit ? `${column.label} (${column.unit})` : column.label;
}

// Missing values stay below the others in both directions' eyes: they compare as smallest.
function compare(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return -1;
  if (b === null || b === undefined) return 1;
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), "en", { numeric: true });
}

// Letters of all columns of a table whose columns stand near each other: far apart a number is not seen to belong to its name.
const MOST_NEAR = 88;

// Of a table that has room in half of a card's width.
const MOST_SMALL = 54;

// A place as wide as that shows the columns, too, that stand aside elsewhere, if each letter has its room.
const WIDE_PX = 1240;
const LETTER_PX = 8;
// In one as wide as that few short columns leave a quarter of it empty, not most of it.
const SPREAD_PX = 900;

const hasRoom = (columns, width) => width >= WIDE_PX && lettersOf(columns) * LETTER_PX <= width;

/** The letters of a line of a table, each of its cells the longest of its column. */
function lettersOf(columns) {
  const longest = ({ text }) => Math.max(0, ...text.slice(0, 200).map((cell) => cell.length));
  return columns.reduce((sum, column) => sum + Math.max(longest(column), `${column.label} ${column.unit ?? ""}`.length) + 3, 0);
}

/** The classes of a table of few short columns. */
function nearness(columns) {
  const sum = lettersOf(columns);
  if (columns.length > 6 || sum > MOST_NEAR) return "";
  return sum > MOST_SMALL ? "pk-near" : "pk-near pk-small";
}

// Words and figures stay on one line; only a column with a long cell breaks.
function isShort(column) {
  return column.text.every((text) => text.length <= 22);
}
