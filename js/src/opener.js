// "Open" in the header of every page of the app: a path, a walk through folders, a file or folder of the visitor's machine, what was
// opened before, and switches for what is open. Files and folders can be dropped anywhere on the page.
import { drawFiles, grouped, inGroups, makeUpload } from "./controls.js";
import { el, freshId } from "./dom.js";
import { makePaste } from "./paste.js";
import { tarOf } from "./tar.js";
import { t } from "./texts.js";

const NAME = "open";
const MARGIN_PX = 8;

/** Puts the opener into the bar of the app; elsewhere (JupyterLab) there is none. */
export function renderOpener({ model }) {
  const place = document.getElementById("bar-open");
  if (!place) return () => {};
  const opener = new Opener((message, parts) => model.send(message, undefined, parts));
  place.replaceChildren(opener.root);
  const draw = () => opener.update(model.get("places"));
  const receive = (message) => opener.receive(message);
  model.on("change:places", draw);
  model.on("msg:custom", receive);
  draw();
  const stop = opener.listen();
  return () => {
    model.off("change:places", draw);
    model.off("msg:custom", receive);
    stop();
  };
}

class Opener {
  constructor(send) {
    this.send = send;
    const paths = el("datalist", { id: freshId("paths") });
    this.paths = paths;
    this.input = el("input", { type: "text", placeholder: t("path of a file or folder on this machine"), spellcheck: "false", autocomplete: "off", "aria-label": t("Path") });
    this.input.setAttribute("list", paths.id);
    this.input.addEventListener("input", () => send({ type: "find", text: this.input.value }));
    this.list = el("ul", { class: "pk-files", hidden: true, "aria-label": t("Browse") });
    this.recent = el("ul", { class: "pk-recent" });
    this.status = el("div", { class: "pk-open-status", role: "alert", hidden: true });
    this.uploading = makeUpload({ name: NAME, label: t("Open") }, send);
    this.folder = el("input", { type: "file", hidden: true, tabindex: "-1", webkitdirectory: "", "aria-label": t("Upload a folder") });
    this.folder.addEventListener("change", () => {
      this.take([...this.folder.files].map((file) => ({ path: file.webkitRelativePath, file })));
      this.folder.value = "";
    });
    this.folderButton = el("button", { type: "button", class: "pk-button", onclick: () => this.folder.click() }, t("Upload a folder"));
    const form = el("form", { class: "pk-open-path" }, this.input, paths,
      el("button", { type: "submit", class: "pk-button pk-primary" }, t("Open")),
      el("button", { type: "button", class: "pk-button", onclick: () => this.browse() }, t("Browse")));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.input.value.trim()) this.open(this.input.value);
    });
    this.narrow = el("div", { class: "pk-switches" });
    this.paste = makePaste(send);
    this.panel = el("div", { class: "pk-open-panel", id: freshId("open"), hidden: true, role: "dialog", "aria-label": t("Open") },
      this.narrow, form, this.list,
      el("div", { class: "pk-open-send" }, this.uploading.button, this.folderButton, this.folder,
        el("span", { class: "pk-note" }, t("or drop files or folders anywhere on the page"))),
      this.uploading.progress, this.status, this.recent, this.paste.root);
    this.button = el("button", { type: "button", class: "bar-button bar-open-button", "aria-expanded": "false", "aria-controls": this.panel.id, onclick: () => this.show(this.panel.hidden) }, t("Open"));
    this.wide = el("div", { class: "pk-switches" });
    this.over = el("div", { class: "pk-drop", hidden: true }, t("Drop it to open it"));
    this.root = el("div", { class: "pk pk-opener" }, this.wide, el("div", { class: "pk-open-box" }, this.button, this.panel), this.over);
  }

  show(open) {
    this.panel.hidden = !open;
    this.button.setAttribute("aria-expanded", String(open));
    if (open) this.keepInside();
    if (open) this.input.focus();
    else if (this.panel.contains(document.activeElement)) this.button.focus();
  }

  /** The panel hangs from its button, as far to the left as the window needs. */
  keepInside() {
    this.panel.style.translate = "";
    const over = this.panel.getBoundingClientRect().right + MARGIN_PX - document.documentElement.clientWidth;
    if (over > 0) this.panel.style.translate = `${-over}px`;
  }

  update(places) {
    const switches = places.switches ?? [];
    for (const box of [this.wide, this.narrow]) box.replaceChildren(...switches.map((one) => this.switchFor(one)));
    this.uploading.offer(places.upload);
    this.folderButton.hidden = !places.upload?.max_bytes;
    const recent = places.recent ?? [];
    this.recent.hidden = recent.length === 0;
    this.recent.replaceChildren(el("li", { class: "pk-note" }, t("Opened before")),
      ...recent.map(({ label, path }) => el("li", {}, el("button", { type: "button", class: "pk-file", title: path, onclick: () => this.open(path) }, label))));
  }

  switchFor({ name, label, value, sample, options }) {
    const values = inGroups(options);
    const select = el("select", { "aria-label": label, title: `${label}: ${value}` }, ...grouped(values));
    select.selectedIndex = values.findIndex((option) => option.value === value);
    select.addEventListener("change", () => this.send({ type: "switch", name, path: values[select.selectedIndex].value }));
    return el("label", { class: "pk-switch-one" }, el("span", { class: "pk-switch-label" }, label, sample ? el("span", { class: "pk-badge" }, t("sample")) : null), select);
  }

  open(path) {
    this.say([t("Looking at {0}…", path)]);
    this.send({ type: "open-path", path });
  }

  browse() {
    this.list.hidden = !this.list.hidden;
    if (!this.list.hidden) this.send({ type: "browse", folder: this.input.value });
  }

  say(lines, failed = false) {
    this.show(true);
    this.status.hidden = lines.length === 0;
    this.status.classList.toggle("pk-failed", failed);
    this.status.replaceChildren(...lines.map((line) => el("p", {}, line)));
  }

  receive(message) {
    if (message.type === "upload") {
      this.uploading.receive(message);
      if (message.received !== undefined && this.sending && message.received >= this.sending) this.say([t("Looking at what came…")]);
    } else if (message.type === "found") {
      if (message.text === this.input.value) this.paths.replaceChildren(...message.paths.map((path) => el("option", { value: path })));
    } else if (message.type === "listing") {
      drawFiles(this.list, message.listing, { open: (folder) => this.send({ type: "browse", folder }), use: (path) => this.open(path) });
    } else if (message.type === "refused") {
      this.say(message.problems, true);
    } else if (message.type === "explained" || message.type === "not-explained") {
      this.paste.receive(message);
    } else if (message.type === "go") {
      const here = location.href.replace(/#.*/, "");
      const there = new URL(message.href, here);
      history.replaceState(null, "", there); // what stands after # is of what was open before
      location.reload();
    }
  }

  // Files and folders of the visitor's machine -------------------------------------------------------------------------

  /** Sends one file as it is, several as an archive, which the kernel unpacks once it has looked at every member. */
  take(entries) {
    if (entries.length === 0) return;
    this.show(true);
    const top = entries[0].path.split("/")[0];
    const one = entries.every(({ path }) => path.startsWith(`${top}/`));
    const named = one ? entries.map(({ path, file }) => ({ path: path.slice(top.length + 1), file })) : entries;
    const file = entries.length === 1 && !one ? entries[0].file : tarOf(`${one ? top : "dropped"}.tar`, named);
    this.sending = file.size;
    this.uploading.start(file);
  }

  listen() {
    let depth = 0;
    const carries = (event) => event.dataTransfer?.types.includes("Files") && this.folderButton.hidden === false;
    const over = (event) => carries(event) && event.preventDefault();
    const enter = (event) => {
      if (!carries(event)) return;
      depth += 1;
      this.over.hidden = false;
    };
    const leave = (event) => {
      if (!carries(event)) return;
      depth -= 1;
      this.over.hidden = depth > 0 ? false : true;
    };
    const drop = async (event) => {
      if (!carries(event)) return;
      event.preventDefault();
      depth = 0;
      this.over.hidden = true;
      this.stopped = false;
      const roots = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
      const found = roots.length ? [] : [...event.dataTransfer.files].map((file) => ({ path: file.name, file }));
      for (const root of roots) await this.walk(root, "", found);
      if (!this.stopped) this.take(found);
    };
    const key = (event) => event.key === "Escape" && !this.panel.hidden && this.show(false);
    const away = (event) => !this.root.contains(event.target) && !this.panel.hidden && this.show(false);
    const heard = { dragover: over, dragenter: enter, dragleave: leave, drop, keydown: key, click: away };
    const resized = () => !this.panel.hidden && this.keepInside();
    for (const [event, listener] of Object.entries(heard)) document.addEventListener(event, listener);
    addEventListener("resize", resized);
    return () => {
      removeEventListener("resize", resized);
      for (const [event, listener] of Object.entries(heard)) document.removeEventListener(event, listener);
    };
  }

  /** All files below an entry of a drop; says how many, and can be stopped. */
  async walk(entry, parent, found) {
    if (this.stopped) return;
    const path = parent + entry.name;
    if (entry.isFile) {
      found.push({ path, file: await new Promise((resolve, reject) => entry.file(resolve, reject)) });
      if (found.length % 100 === 0) this.sayCounted(found.length);
      return;
    }
    const reader = entry.createReader();
    for (;;) {
      const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject)); // some at a time, at last none
      if (some.length === 0) return;
      for (const each of some) await this.walk(each, `${path}/`, found);
    }
  }

  sayCounted(count) {
    this.say([t("{0} files so far…", count)]);
    this.status.append(el("button", { type: "button", class: "pk-quiet", onclick: () => {
      this.stopped = true;
      this.say([]);
    } }, t("Cancel")));
  }
}
