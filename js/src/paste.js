// A piece that is pasted into the header, and what it means: where it belongs, what it says, figures, problems, the corrected text.
// The text goes to the page's kernel and nowhere else: not into the address, the project or a file.
import { el } from "./dom.js";
import { t } from "./texts.js";

export function makePaste(send) {
  const input = el("textarea", { class: "pk-paste-text", rows: "5", spellcheck: "false", autocomplete: "off", "aria-label": t("Piece of a configuration, log, script or graph"),
    placeholder: t("YAML, exports, launch lines, log lines, tables, graph lines: what a guide prints or a run wrote") });
  const answer = el("div", { class: "pk-paste-answer", "aria-live": "polite" });
  const ask = () => {
    if (!input.value.trim()) return;
    answer.replaceChildren(el("p", { class: "pk-note" }, t("Computing…")));
    send({ type: "explain", text: input.value });
  };
  const clear = () => {
    input.value = "";
    answer.replaceChildren();
    input.focus();
  };
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    ask();
  });
  const root = el("details", { class: "pk-paste" }, el("summary", {}, t("What does this mean? Paste a piece")), input,
    el("div", { class: "pk-open-send" },
      el("button", { type: "button", class: "pk-button pk-primary", title: "Ctrl+Enter", onclick: ask }, t("Explain")),
      el("button", { type: "button", class: "pk-button", onclick: clear }, t("Clear")),
      el("span", { class: "pk-note" }, t("It stays on this page; secrets are masked"))),
    answer);
  const receive = (message) => answer.replaceChildren(...(message.type === "explained" ? drawn(message) : message.problems.map((text) => el("p", { class: "pk-paste-error" }, text))));
  return { root, receive };
}

function drawn({ light, parts, prose, notes }) {
  return [
    light ? el("p", { class: "pk-note" }, t("Read in the light of {0}", light)) : null,
    ...notes.map((note) => el("p", { class: "pk-note" }, note)),
    ...parts.map(partOf),
    prose.length ? el("p", { class: "pk-note" }, t("Nothing that perfkit knows: line {0}", prose.slice(0, 10).join(", ") + (prose.length > 10 ? ", …" : ""))) : null,
  ].filter(Boolean);
}

function partOf({ title, line, belongs, says, figures, problems, corrected }) {
  return el("section", { class: "pk-paste-part" },
    el("h3", {}, title, el("span", { class: "pk-note" }, ` ${t("line {0}", line)}`)),
    belongs ? el("p", { class: "pk-note" }, `${t("Belongs")}: ${belongs}`) : null,
    problems.length ? el("ul", { class: "pk-paste-problems" }, problems.map(({ severity, label, text, fix }) =>
      el("li", { "data-severity": severity }, el("b", {}, label), ` ${text}`, fix ? el("span", { class: "pk-paste-fix" }, fix) : null))) : null,
    says.length ? el("ul", {}, says.map((text) => el("li", {}, text))) : null,
    figures.length ? el("table", {}, el("tbody", {}, figures.map(({ name, value, source }) => el("tr", { title: source }, el("th", { scope: "row" }, name), el("td", {}, value))))) : null,
    corrected ? correctedOf(corrected) : null);
}

function correctedOf(text) {
  const copy = el("button", { type: "button", class: "pk-quiet", onclick: async () => {
    await navigator.clipboard.writeText(text);
    copy.textContent = t("Copied");
  } }, t("Copy"));
  return el("figure", { class: "pk-paste-corrected" }, el("figcaption", {}, t("Corrected"), copy), el("pre", { class: "pk-code", tabindex: "0" }, text));
}
