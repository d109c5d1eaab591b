// The controls of a panel: native inputs with a label, a unit and a hint that names the configuration key.
import { el, freshId } from "./dom.js";
import { t } from "./texts.js";

/** One control; `onValue(value)` is called while the visitor changes it. `update({spec, value, note})` never steals the focus. */
export function makeControl(spec, onValue, send) {
  const make = makers[spec.kind];
  if (!make) throw new Error(`unknown control ${spec.kind}`);
  const id = freshId("control");
  const note = el("span", { class: "pk-control-note", id: `${id}-note`, "aria-live": "polite" });
  const parts = make(spec, id, onValue, send);
  const hint = spec.hint ? el("span", { class: "pk-hint", id: `${id}-hint` }, spec.hint) : null;
  const label = parts.label ?? el("label", { for: id, class: "pk-label", title: spec.hint || null }, spec.label);
  const root = el(parts.group ? "fieldset" : "div", { class: `pk-control pk-${spec.kind}${spec.multiple ? " pk-several" : ""}`, "data-control": spec.name },
    el("div", { class: "pk-control-head" }, label, parts.aside), parts.body, hint, note);
  for (const input of root.querySelectorAll("input, select")) input.setAttribute("aria-describedby", `${id}-hint ${id}-note`);
  return {
    root,
    receive: parts.receive,
    update(value, message, fresh = spec) {
      parts.update(value, fresh);
      note.textContent = message ?? "";
      root.hidden = fresh.hidden === true;
    },
  };
}

const makers = {
  slider: makeSlider,
  number: makeNumber,
  text: makeText,
  toggle: makeToggle,
  choice: (spec, id, onValue) => (spec.multiple ? makeChecks(spec, id, onValue) : spec.buttons ? makeButtons(spec, id, onValue) : makeSelect(spec, id, onValue)),
  path: makePath,
};

/** Whether somebody is typing in a field: an answer that comes meanwhile must not take the text back. */
function typingIn(input) {
  let typing = false;
  input.addEventListener("input", () => (typing = true));
  for (const end of ["change", "blur"]) input.addEventListener(end, () => (typing = false));
  return () => typing;
}

// A number field shows four digits of a fraction, and all of them to whoever is in it; what was not typed keeps its exact value.
function brief(input) {
  let exact = "";
  const draw = () => {
    const shown = document.activeElement === input ? exact : short(exact);
    if (input.value === "" || shown === "" || Number(input.value) !== shown) input.value = shown;
    input.title = short(exact) === exact ? "" : String(exact);
  };
  for (const turn of ["focus", "blur"]) input.addEventListener(turn, () => (input.value === "" ? "" : Number(input.value)) === (turn === "focus" ? short(exact) : exact) && draw());
  return (value) => {
    exact = value;
    draw();
  };
}

function short(value) {
  return typeof value === "number" && !Number.isInteger(value) ? Number(value.toPrecision(Math.max(4, String(Math.trunc(Math.abs(value))).length))) : value;
}

// A slider has positions; `values` names them when they are few or not evenly spaced (powers of two, a log scale).
function makeSlider(spec, id, onValue) {
  let current = spec;
  const range = el("input", { type: "range", id, "aria-label": spec.label });
  const exact = el("input", { type: "number", class: "pk-exact", "aria-label": `${spec.label}, exact` });
  const show = brief(exact);
  const valueAt = (position) => (current.values ? current.values[position] : position);
  const positionOf = (value) => (current.values ? nearest(current.values, value) : value);
  const describe = (value) => range.setAttribute("aria-valuetext", `${value} ${current.unit ?? ""}`.trim());
  range.addEventListener("input", () => {
    const value = valueAt(Number(range.value));
    show(value);
    describe(value);
    onValue(value);
  });
  exact.addEventListener("change", () => onValue(typed(exact)));
  const typing = typingIn(exact);
  const unit = el("span", { class: "pk-unit" }, spec.unit);
  return {
    aside: el("span", { class: "pk-aside" }, exact, unit),
    body: range,
    update(value, fresh) {
      current = fresh;
      const positions = fresh.values ? { min: 0, max: fresh.values.length - 1, step: 1 } : { min: fresh.low, max: fresh.high, step: fresh.step };
      Object.assign(range, positions);
      Object.assign(exact, { min: fresh.low, max: fresh.high, step: fresh.step ?? "any" });
      if (document.activeElement !== range || Number(range.value) !== positionOf(value)) range.value = positionOf(value);
      if (!typing()) show(value);
      describe(value);
    },
  };
}

function makeNumber(spec, id, onValue) {
  const input = el("input", { type: "number", id, min: spec.low, max: spec.high, step: spec.step ?? "any", placeholder: spec.placeholder || null });
  input.addEventListener("change", () => onValue(typed(input)));
  const typing = typingIn(input);
  const show = brief(input);
  return {
    body: el("span", { class: "pk-field" }, input, el("span", { class: "pk-unit" }, spec.unit)),
    update(value, fresh) {
      if (!typing()) show(value === fresh.empty ? "" : (value ?? ""));
    },
  };
}

// What stands in a number field: null for an empty one, words that are no number for what the browser does not take for one.
// The kernel decides what may be empty, and says why a field keeps what it had.
function typed(input) {
  if (Number.isFinite(input.valueAsNumber)) return input.valueAsNumber;
  return input.validity.badInput ? t("what was typed") : null;
}

function makeText(spec, id, onValue) {
  const input = el("input", { type: "text", id, placeholder: spec.placeholder, spellcheck: "false", autocomplete: "off" });
  input.addEventListener("change", () => onValue(input.value));
  const typing = typingIn(input);
  return {
    body: el("span", { class: "pk-field" }, input, el("span", { class: "pk-unit" }, spec.unit)),
    update(value) {
      if (!typing()) input.value = value ?? "";
    },
  };
}

function makeToggle(spec, id, onValue) {
  const input = el("input", { type: "checkbox", id, role: "switch" });
  input.addEventListener("change", () => onValue(input.checked));
  return {
    label: el("label", { class: "pk-label pk-switch", for: id, title: spec.hint || null }, input, el("span", {}, spec.label)),
    update(value) {
      input.checked = Boolean(value);
    },
  };
}

function makeSelect(spec, id, onValue) {
  const select = el("select", { id });
  let shown = "";
  let options = [];
  select.addEventListener("change", () => onValue(options[select.selectedIndex].value));
  return {
    body: el("span", { class: "pk-field" }, select, el("span", { class: "pk-unit" }, spec.unit)),
    update(value, fresh) {
      const wanted = JSON.stringify(fresh.options);
      if (wanted !== shown) {
        shown = wanted;
        options = inGroups(fresh.options);
        select.replaceChildren(...grouped(options));
      }
      select.selectedIndex = options.findIndex((option) => same(option.value, value));
    },
  };
}

// Options of one group stand together in the list, so the values must too: the list knows them by their place only.
export function inGroups(options) {
  const groups = [...new Set(["", ...options.map((option) => option.group ?? "")])];
  return groups.flatMap((group) => options.filter((option) => (option.group ?? "") === group));
}

export function grouped(options) {
  const nodes = [];
  const groups = new Map();
  for (const option of options) {
    const node = el("option", {}, option.label);
    if (!option.group) nodes.push(node);
    else {
      if (!groups.has(option.group)) {
        groups.set(option.group, el("optgroup", { label: option.group }));
        nodes.push(groups.get(option.group));
      }
      groups.get(option.group).append(node);
    }
  }
  return nodes;
}

function makeButtons(spec, id, onValue) {
  const box = el("div", { class: "pk-segments" });
  return choices(spec, id, box, "radio", (option) => onValue(option.value), same);
}

function makeChecks(spec, id, onValue) {
  const box = el("div", { class: "pk-checks" });
  let chosen = [];
  const toggle = (option, checked) => {
    chosen = chosen.filter((value) => !same(value, option.value));
    if (checked) chosen.push(option.value);
    onValue(chosen);
  };
  const parts = choices(spec, id, box, "checkbox", toggle, (value, values) => (values ?? []).some((one) => same(one, value)));
  return { ...parts, update: (value, fresh) => parts.update((chosen = [...(value ?? [])]), fresh) };
}

function choices(spec, id, box, type, onPick, isChosen) {
  let shown = "";
  return {
    group: true,
    label: el("legend", { class: "pk-label", title: spec.hint || null }, spec.label, spec.unit ? el("span", { class: "pk-unit" }, ` ${spec.unit}`) : null),
    body: box,
    update(value, fresh) {
      const wanted = JSON.stringify(fresh.options);
      if (wanted !== shown) {
        shown = wanted;
        box.replaceChildren(...fresh.options.map((option) => {
          const input = el("input", { type, name: id });
          input.addEventListener("change", () => onPick(option, input.checked));
          return el("label", {}, input, el("span", {}, option.label));
        }));
      }
      fresh.options.forEach((option, index) => {
        box.children[index].firstChild.checked = isChosen(option.value, value);
      });
    },
  };
}

/** Shows the end of a path that is longer than its field: its name tells more than the folders that all begin with. */
function showEnd(input) {
  requestAnimationFrame(() => { input.scrollLeft = input.scrollWidth; });
}

// A folder or file on the server: type it, or walk there. What may be listed is decided by the kernel.
function makePath(spec, id, onValue, send) {
  const input = el("input", { type: "text", id, placeholder: spec.placeholder, spellcheck: "false", autocomplete: "off" });
  new ResizeObserver(() => document.activeElement === input || showEnd(input)).observe(input); // also when it is unfolded
  const samples = el("select", { "aria-label": t("{0}: ready to use", spec.label) });
  const list = el("ul", { class: "pk-files", hidden: true, "aria-label": `${spec.label}: folder` });
  let options = [];
  let current = "";
  const pick = (path) => onValue(path);
  const browse = el("button", { type: "button", class: "pk-button", "aria-expanded": "false" }, t("Browse"));
  browse.addEventListener("click", () => {
    list.hidden = !list.hidden;
    browse.setAttribute("aria-expanded", String(!list.hidden));
    if (!list.hidden) send({ type: "browse", name: spec.name, folder: input.value || current });
  });
  // An emptied field and the prompt of the list choose nothing: what was open is given up.
  input.addEventListener("change", () => (input.value || current) && onValue(input.value));
  input.addEventListener("blur", () => showEnd(input));
  samples.addEventListener("change", () => pick(samples.selectedIndex > 0 ? options[samples.selectedIndex - 1].value : ""));
  const upload = makeUpload(spec, send);
  let shown = "";
  return {
    body: el("div", { class: "pk-path-body" }, samples, el("span", { class: "pk-field" }, input, browse, upload.button), upload.progress, list),
    receive: upload.receive,
    update(value, fresh) {
      upload.offer(fresh.upload);
      current = value ?? "";
      const wanted = JSON.stringify(fresh.options);
      if (wanted !== shown) {
        shown = wanted;
        options = inGroups(fresh.options);
        samples.hidden = options.length === 0;
        samples.replaceChildren(el("option", {}, fresh.prompt), ...grouped(options));
      }
      samples.selectedIndex = options.findIndex((option) => option.value === value) + 1;
      // One that it does not name stands in it by its last part, so that nobody is asked to choose what is open already.
      const last = current.split(/[\\/]/).filter(Boolean).pop();
      if (samples.options.length) samples.options[0].textContent = samples.selectedIndex > 0 || !last ? fresh.prompt : last;
      // A path that the list names is told by its name; the field is for paths that it does not.
      if (document.activeElement !== input) {
        input.value = samples.selectedIndex > 0 ? "" : current;
        showEnd(input);
      }
      input.title = current;
      drawFiles(list, fresh.listing, {
        open: (folder) => send({ type: "browse", name: spec.name, folder }),
        use: (path) => {
          list.hidden = true;
          browse.setAttribute("aria-expanded", "false");
          pick(path);
        },
      });
    },
  };
}

// A file of the visitor's own machine, sent in parts: the next one goes out when the kernel has written the last.
export function makeUpload(spec, send) {
  let file = null;
  let limits = {};
  const input = el("input", { type: "file", hidden: true, tabindex: "-1", "aria-label": `${spec.label}: upload` });
  const bar = el("progress", { max: 1, "aria-label": `${spec.label}: upload` });
  const text = el("span", { class: "pk-note", role: "status" });
  const cancel = el("button", { type: "button", class: "pk-quiet" }, t("Cancel"));
  const progress = el("div", { class: "pk-upload", hidden: true }, bar, text, cancel);
  const say = (message, share = null) => {
    progress.hidden = !message;
    bar.hidden = share === null;
    cancel.hidden = share === null;
    if (share !== null) bar.value = share;
    text.textContent = message;
  };
  const open = el("button", { type: "button", class: "pk-button", onclick: () => input.click() }, t("Upload"));
  const start = (chosen) => {
    file = chosen;
    say(t("Sending {0}…", file.name), 0);
    send({ type: "upload", step: "begin", name: spec.name, file: file.name, bytes: file.size });
  };
  input.addEventListener("change", () => {
    const [chosen] = input.files;
    input.value = "";
    if (chosen) start(chosen);
  });
  cancel.addEventListener("click", () => {
    send({ type: "upload", step: "cancel", name: spec.name });
    file = null;
    say("");
  });
  const button = el("span", { hidden: true }, input, open);
  return {
    button,
    progress,
    start,
    offer(offered) {
      limits = offered ?? {};
      button.hidden = !limits.max_bytes;
      open.title = limits.max_bytes ? t("A file or archive (.zip, .tar, .tar.gz) of your machine, up to {0} MiB", mebibytes(limits.max_bytes)) : "";
    },
    async receive({ received, problems }) {
      if (problems) {
        file = null;
        say(problems.join("; "));
      } else if (file && received < file.size) {
        say(`${mebibytes(received)} of ${mebibytes(file.size)} MiB`, received / file.size);
        const part = await file.slice(received, received + limits.part_bytes).arrayBuffer();
        if (file) send({ type: "upload", step: "part", name: spec.name }, [part]);
      } else {
        file = null;
        say("");
      }
    },
  };
}

const mebibytes = (bytes) => (bytes / 2 ** 20).toFixed(bytes < 2 ** 20 ? 1 : 0);

export function drawFiles(list, listing, act) {
  if (!listing) return;
  const row = (label, onclick, use) =>
    el("li", {}, el("button", { type: "button", class: "pk-file", onclick }, label),
      use ? el("button", { type: "button", class: "pk-quiet", onclick: use }, t("Use")) : null);
  list.replaceChildren(
    el("li", { class: "pk-note" }, listing.folder, " ", el("button", { type: "button", class: "pk-quiet", onclick: () => act.use(listing.folder) }, t("Use this folder"))),
    ...(listing.parent ? [row(t("↑ up"), () => act.open(listing.parent))] : []),
    ...listing.entries.map((entry) =>
      entry.folder
        ? row(`${entry.name}/`, () => act.open(entry.path), () => act.use(entry.path))
        : row(entry.name, () => act.use(entry.path))),
    ...(listing.note ? [el("li", { class: "pk-note" }, listing.note)] : []),
  );
}

function nearest(values, value) {
  let best = 0;
  values.forEach((candidate, index) => {
    if (Math.abs(candidate - value) < Math.abs(values[best] - value)) best = index;
  });
  return best;
}

function same(a, b) {
  return a === b || JSON.stringify(a) === JSON.stringify(b);
}
