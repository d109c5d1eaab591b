// Timelines of a page one above the other: they show the same stretch of time, counted from a step of each, and move together.
import { el } from "./dom.js";
import { toCommon } from "./timeline_clock.js";
import { t } from "./texts.js";

const timelines = new Set();

/** A timeline on the page, as long as it is there. */
export class Pair {
  constructor(timeline) {
    this.timeline = timeline;
    this.step = "";
    this.choice = el("select", { "aria-label": t("Step at which the timelines are aligned"), hidden: true, onchange: () => {
      this.step = this.choice.value;
      this.others().forEach((other) => this.lead(other));
      timeline.redraw();
    } });
    timelines.add(this);
  }

  leave() {
    timelines.delete(this);
    this.changed();
  }

  /** Those that it moves with: what is meant to stand beside others, and these. */
  others() {
    const beside = Boolean(this.timeline.setup?.beside);
    return [...timelines].filter(({ timeline }) => timeline.setup && Boolean(timeline.setup.beside) !== beside && !timeline.setup.link && timeline.root.dataset.state === "result");
  }

  /** A recording was opened here: it takes its place beside the others, at a step that both have. */
  join() {
    const { setup } = this.timeline;
    const steps = setup.steps.map(({ step }) => String(step));
    const [other] = this.others();
    if (!steps.includes(this.step)) this.step = steps.find((step) => step === other?.step) ?? steps[0] ?? "";
    this.choice.replaceChildren(...(steps.length ? steps : [""]).map((step) => el("option", { value: step, selected: step === this.step }, step ? t("{0}, at step {1}", setup.run, step) : t("{0}, at its begin", setup.run))));
    this.changed();
    other?.lead(this);
  }

  changed() {
    timelines.forEach((each) => each.offer());
  }

  /** Draws what stands beside the first one right below its lanes, and the step at which both are aligned above them. */
  offer() {
    const { setup, root, main, face } = this.timeline;
    const [first] = root.dataset.state === "result" ? this.others() : [];
    this.choice.hidden = !first;
    root.classList.toggle("pk-tl-pair", Boolean(first));
    if (!setup?.beside) return;
    const above = first?.timeline.face ?? null;
    if (above && above.nextSibling !== face) above.after(face);
    if (!above && face.parentNode !== main) main.prepend(face);
  }

  /** Where the step begins at which this timeline is aligned. */
  anchor() {
    const { setup, rows } = this.timeline;
    const step = setup.steps.find((each) => String(each.step) === this.step);
    return step ? toCommon(rows.clockOf(step.rank), step.start) : setup.start;
  }

  get aligned() {
    return !this.choice.hidden;
  }

  /** Shows in the others what is shown here. */
  moved() {
    this.others().forEach((other) => this.lead(other));
  }

  /** The others are asked about the same stretch: what it took there stands in their details. */
  ranged(start, end) {
    for (const other of this.others()) other.timeline.takeRange(start - this.anchor() + other.anchor(), end - this.anchor() + other.anchor(), null);
  }

  lead(other) {
    const { start, span } = this.timeline.view;
    other.timeline.show(start - this.anchor() + other.anchor(), span);
  }
}
