// In a class: the instructor's line, a clock that counts down, and how many are here, above every page.
import { el } from "./dom.js";
import { t } from "./texts.js";

const CALL_MS = 5000;

export class ClassBar {
  constructor(model) {
    this.model = model;
    this.message = el("span", { class: "pk-class-message", role: "status" });
    // Read on demand only: a clock that is announced each second would drown everything else.
    this.clock = el("span", { class: "pk-class-clock", role: "timer", "aria-live": "off" });
    this.here = el("span", { class: "pk-class-here" });
    this.root = el("aside", { class: "pk pk-class", "aria-label": t("Class") }, this.message, this.clock, this.here);
    this.draw = () => this.update();
    model.on("change:bulletin", this.draw);
    this.timers = [setInterval(() => model.send({ type: "class" }), CALL_MS), setInterval(() => this.tick(), 1000)];
    this.update();
  }

  update() {
    const { message, state, here } = this.model.get("bulletin");
    const states = { paused: t("Paused by the instructor."), ended: t("The class has ended.") };
    const text = [states[state], message].filter(Boolean).join(" ") || t("Class");
    if (this.message.textContent !== text) this.message.textContent = text;
    this.here.textContent = t("{0} here", here);
    this.tick();
  }

  tick() {
    const left = Math.round((this.model.get("bulletin").ends_ms - Date.now()) / 1000);
    const running = this.model.get("bulletin").ends_ms > 0 && left > -60;
    this.clock.hidden = !running;
    this.clock.classList.toggle("pk-class-late", left <= 0);
    this.clock.textContent = left > 0 ? t("{0} min left", `${Math.floor(left / 60)}:${String(left % 60).padStart(2, "0")}`) : t("Time is up");
  }

  stop() {
    this.model.off("change:bulletin", this.draw);
    this.timers.forEach(clearInterval);
  }
}
