// The details of a timeline: the chosen slice, statistics and list of a range, marks with their notes.
import { csv, download, el } from "./dom.js";
import { Table } from "./table.js";
import { absolute, exactNs } from "./timeline_time.js";
import { t } from "./texts.js";

const HEAD = { "aria-level": "2" };  // they stand below the title of the page

const FIELDS = {
  Name: t("Name"), Kind: t("Kind"), Start: t("Start"), Length: t("Length"), Rank: t("Rank"), Process: t("Process"), Lane: t("Lane"), Busy: t("Busy"),
  Range: t("Range"), Samples: t("Samples"), Code: t("Line of code"), Through: t("Through"), From: t("Called from"),
};

export class TimelineDetails {
  constructor(timeline) {
    this.timeline = timeline;
    this.slice = el("div", { class: "pk-tl-card", "data-part": "slice" });
    this.range = el("div", { class: "pk-tl-card", "data-part": "range" });
    this.marks = el("div", { class: "pk-tl-card", "data-part": "marks" });
    this.root = el("div", { class: "pk-tl-details" }, this.slice, this.range, this.marks);
    this.clear();
  }

  clear() {
    this.showSlice(null);
    this.range.replaceChildren(el("h3", HEAD, t("Selection")), el("p", { class: "pk-note" },
      t("Drag on the ruler, or over the lanes with Shift, or press R for the slice and V for the window: what ran there, by name and one by one.")));
  }

  showSlice(message) {
    const { timeline } = this;
    if (!message) {
      this.slice.replaceChildren(el("h3", HEAD, t("Slice")), el("p", { class: "pk-note" }, t("Click a slice, or walk with the arrow keys.")));
      return;
    }
    const button = (label, onclick) => el("button", { type: "button", class: "pk-button", onclick }, label);
    const text = () => message.fields.map(([name, value]) => `${name}\t${value}`).join("\n");
    this.slice.replaceChildren(el("h3", HEAD, message.title),
      el("dl", { class: "pk-tl-fields" }, message.fields.flatMap(([name, value]) => [el("dt", {}, FIELDS[name] ?? name), el("dd", {}, value)])),
      el("div", { class: "pk-tl-actions" },
        button(t("Fit"), () => timeline.fit()),
        ...(message.links ?? []).map(([label, href]) => el("a", { class: "pk-button", href }, label)),
        ...this.ends(message).map(([label, [unit, lane, start]]) => button(label, () => timeline.walkTo(unit, lane, start))),
        button(t("Longest of the name"), () => timeline.walk("longest")),
        button(t("Next of the name"), () => timeline.walk("name")),
        button(t("Previous of the name"), () => timeline.walk("name", -1)),
        button(t("Copy"), () => navigator.clipboard.writeText(text()))));
  }

  /** The other ends of the arrows of launches: of a kernel its launch, of a launch its kernels. */
  ends({ arrows = [] }) {
    const { selected } = this.timeline;
    const here = ([unit, lane]) => unit === selected?.unit && lane === selected?.lane;
    const launches = arrows.filter(({ kind }) => kind === "launch");
    return [...launches.filter(({ to }) => here(to)).map(({ from }) => [t("Go to its launch"), from]),
      ...launches.filter(({ from }) => here(from)).slice(0, 1).map(({ to }) => [t("Go to its kernel"), to])];
  }

  receive(message) {
    if (message.type === "detail") {
      this.showSlice(message);
      if (!this.timeline.allArrows) this.timeline.arrows = message.arrows ?? [];
      this.timeline.redraw();
    } else if (message.type === "selection") {
      this.showSelection(message);
    } else if (message.type === "csv") {
      download("timeline.csv", message.text, "text/csv");
    }
  }

  showSelection(message) {
    const { timeline } = this;
    const tables = message.tables.map((content) => {
      const table = new Table((row) => timeline.select(message.slices[row], { center: true, zoom: true }));
      table.update(content);
      const copy = el("button", { type: "button", class: "pk-quiet", onclick: () => navigator.clipboard.writeText(csv(table.columns(), "\t")) }, t("Copy"));
      table.root.querySelector(".pk-tools")?.append(copy);
      return table.root;
    });
    const whole = el("button", { type: "button", class: "pk-button", onclick: () => timeline.send({ ...message.asked, type: "csv" }) }, t("All slices as CSV"));
    this.range.replaceChildren(el("h3", HEAD, t("Selection")), el("p", {}, message.text), whole, ...drawFlame(message.flame, (name) => timeline.startSearch(`^${name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}$`)), ...tables);
    timeline.live.textContent = message.text;
  }

  askMark() {
    const { timeline } = this;
    const [chosen] = timeline.selected ? timeline.commonSpan(timeline.selected) : [];
    const at = chosen ?? timeline.range?.start ?? timeline.view.start + timeline.view.span / 2;
    const note = el("input", { type: "text", maxlength: "200", "aria-label": t("Note of the mark") });
    const save = () => {
      if (!note.value.trim()) return;
      timeline.send({ type: "mark", at: absolute(timeline.base, at), note: note.value });
      timeline.canvas.focus();
    };
    note.addEventListener("keydown", (event) => {
      if (event.key === "Enter") save();
      if (event.key === "Escape") {
        this.drawMarks();
        timeline.canvas.focus();
      }
    });
    this.drawMarks(el("div", { class: "pk-tl-actions" }, el("label", {}, `${t("Mark at {0}", exactNs(at - timeline.setup.start))} `, note),
      el("button", { type: "button", class: "pk-button pk-primary", onclick: save }, t("Save"))));
    note.focus();
  }

  drawMarks(form = null) {
    const { timeline } = this;
    const { marks = [], start } = timeline.setup;
    const items = marks.map((mark) => el("li", {},
      el("button", { type: "button", class: "pk-quiet", onclick: () => timeline.setView(mark.start - timeline.view.span / 2, timeline.view.span) },
        `${exactNs(mark.start - start)}: ${mark.note}`),
      el("button", { type: "button", class: "pk-quiet", "aria-label": t("Remove the mark {0}", mark.note), onclick: () => timeline.send({ type: "unmark", at: mark.at }) }, "×")));
    this.marks.replaceChildren(el("h3", HEAD, t("Marks")), ...[form, items.length ? el("ul", { class: "pk-tl-marks" }, items) : form ? null
      : el("p", { class: "pk-note" }, t("M sets a mark with a note; it is kept in the project."))].filter(Boolean));
  }
}

const BOX = 18; // pixels of a call in the flame

/** What ran inside of what: a box a way of calls, as wide as it took; a click marks all calls of its name. */
function drawFlame(boxes, find) {
  if (!boxes?.length) return [];
  const depth = 1 + Math.max(...boxes.map((box) => box.depth));
  const drawn = boxes.map((box) => {
    const node = el("div", { class: "pk-tl-call", title: `${box.name}\n${box.text}`, onclick: () => find(box.name) }, box.name);
    Object.assign(node.style, { left: `${100 * box.left}%`, width: `${100 * box.width}%`, top: `${BOX * box.depth}px` });
    node.style.setProperty("--pk-call", hueOf(box.name));
    return node;
  });
  const picture = el("div", { class: "pk-tl-calls" }, drawn);
  picture.style.height = `${BOX * depth}px`;
  const title = t("Calls inside of calls, as wide as they took");
  return [el("h4", {}, title), el("div", { class: "pk-tl-flame", role: "img", "aria-label": title }, picture)];
}

/** Calls of one file or library have one hue. */
function hueOf(name) {
  let sum = 0;
  for (const char of name.split(/[(:]/)[0]) sum = (sum * 31 + char.codePointAt(0)) % 360;
  return String(sum);
}
