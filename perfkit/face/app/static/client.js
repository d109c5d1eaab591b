// The widgets of a page and its kernel: every view is drawn as soon as its cell has arrived and the kernel has told what it shows.
//
// A page of the app shows perfkit's own views alone, which ask of a model what stands in `Model`. JupyterLab's front end, which Voila
// would load, can do all that notebooks may want, in a hundred files, and begins when the last cell is there.

const PROTOCOL = "v1.kernel.websocket.jupyter.org"; // of jupyter_server: a message as parts, none of which the server has to read
const RETRY_MS = 1000;
const LONGEST_PAUSE_MS = 16000;
const root = document.documentElement;

/** Whether two values of a trait are equal; views draw what changed. */
function same(a, b) {
  if (a === b) return true;
  if (typeof a !== "object" || typeof b !== "object" || !a || !b || Array.isArray(a) !== Array.isArray(b)) return false;
  const names = Object.keys(a);
  return names.length === Object.keys(b).length && names.every((name) => Object.hasOwn(b, name) && same(a[name], b[name]));
}

/** The browser's side of a widget, with what views use of a model of Jupyter's: `get`, `on`, `once`, `off`, `send`. */
class Model {
  #state;
  #send;
  #listeners = new Map();

  constructor(state, send) {
    this.#state = state;
    this.#send = send;
  }

  get(name) {
    return this.#state[name];
  }

  /** Calls `listener` at "change:TRAIT", or with content and buffers of each "msg:custom". */
  on(event, listener) {
    this.#listeners.set(event, [...(this.#listeners.get(event) ?? []), listener]);
  }

  once(event, listener) {
    const first = (...said) => {
      this.off(event, first);
      listener(...said);
    };
    this.on(event, first);
  }

  off(event, listener) {
    this.#listeners.set(event, (this.#listeners.get(event) ?? []).filter((one) => one !== listener));
  }

  /** Says `content` to the kernel; `parts` are bytes that go along. The middle place is that of Jupyter's callbacks. */
  send(content, _callbacks, parts = []) {
    this.#send({ method: "custom", content }, parts);
  }

  /** Takes what the kernel says of this widget. */
  hear({ method, state, content }, parts) {
    if (method === "custom") this.#tell("msg:custom", content, parts);
    if (method !== "update") return;
    const changed = Object.keys(state).filter((name) => !same(this.#state[name], state[name]));
    this.#state = { ...this.#state, ...state };
    for (const name of changed) this.#tell(`change:${name}`);
  }

  #tell(event, ...said) {
    for (const listener of this.#listeners.get(event) ?? []) {
      try {
        listener(...said);
      } catch (error) {
        reportError(error); // of one view, which is not to keep the others from hearing
      }
    }
  }
}

/** The parts of a message, joined: how many there are, where each begins and the last one ends, then all of them. */
function packed(parts) {
  const encoder = new TextEncoder();
  const bytes = parts.map((part) => (typeof part === "string" ? encoder.encode(part) : new Uint8Array(part.buffer ?? part, part.byteOffset ?? 0, part.byteLength)));
  const head = 8 * (parts.length + 2);
  const all = new Uint8Array(bytes.reduce((size, part) => size + part.length, head));
  const view = new DataView(all.buffer);
  let at = head;
  view.setBigUint64(0, BigInt(parts.length + 1), true);
  for (const [index, part] of bytes.entries()) {
    view.setBigUint64(8 * (index + 1), BigInt(at), true);
    all.set(part, at);
    at += part.length;
  }
  view.setBigUint64(head - 8, BigInt(at), true);
  return all;
}

/** The header, the content and the bytes that came along of a packed message; its first part is the channel. */
function unpacked(buffer) {
  const view = new DataView(buffer);
  const places = Array.from({ length: Number(view.getBigUint64(0, true)) }, (_, index) => Number(view.getBigUint64(8 * (index + 1), true)));
  const part = (index) => new DataView(buffer, places[index], places[index + 1] - places[index]);
  const read = (index) => JSON.parse(new TextDecoder().decode(part(index)));
  return { type: read(1).msg_type, content: () => read(4), parts: places.slice(5, -1).map((_, index) => part(index + 5)) };
}

/** All widgets of a kernel. A connection that is lost is made again, and what was to be said meanwhile is said then. */
class Kernel {
  #address;
  #session = crypto.randomUUID?.() ?? String(Math.random()).slice(2); // browsers have it where the connection is safe
  #control = `control-${this.#session}`;
  #models = new Map();
  #awaited = new Map();
  #waiting = [];
  #missed = false;
  #socket = null;
  #sent = 0;

  constructor(base, id) {
    this.#address = `${location.origin.replace(/^http/, "ws")}${base}api/kernels/${id}/channels?session_id=${this.#session}`;
    this.#connect();
  }

  /** The model of a widget, once the kernel has told it. */
  model(id) {
    if (this.#models.has(id)) return Promise.resolve(this.#models.get(id));
    return new Promise((resolve) => this.#awaited.set(id, [...(this.#awaited.get(id) ?? []), resolve]));
  }

  #connect() {
    this.#socket = Object.assign(new WebSocket(this.#address, PROTOCOL), { binaryType: "arraybuffer" });
    this.#socket.addEventListener("open", () => this.#greet());
    this.#socket.addEventListener("message", ({ data }) => this.#receive(unpacked(data)));
    this.#socket.addEventListener("close", () => {
      this.#missed = true;
      setTimeout(() => window.perfkitPage.isHere() && this.#connect(), RETRY_MS);
    });
  }

  #greet() {
    this.ask();
    for (const said of this.#waiting.splice(0)) this.#socket.send(said);
  }

  /** Whether a view waits for the widget `id`, which the kernel has not told. */
  isAwaited(id) {
    return this.#awaited.has(id);
  }

  /** Asks for the widgets that there are: they were made before anybody listened, or changed while nobody did. */
  ask() {
    if (this.#socket.readyState !== WebSocket.OPEN) return; // it asks as soon as it is
    this.#say("comm_open", { comm_id: this.#control, target_name: "jupyter.widget.control", data: {} }, [], { version: "1.0.0" });
    this.#say("comm_msg", { comm_id: this.#control, data: { method: "request_states" } });
  }

  #say(type, content, parts = [], metadata = {}) {
    const header = { msg_id: `${this.#session}-${(this.#sent += 1)}`, msg_type: type, session: this.#session, username: "", version: "5.3", date: new Date().toISOString() };
    const said = packed(["shell", ...[header, {}, metadata, content].map((part) => JSON.stringify(part)), ...parts]);
    if (this.#socket.readyState === WebSocket.OPEN) this.#socket.send(said);
    else if (window.perfkitPage.isHere()) this.#waiting.push(said);
  }

  #receive({ type, content, parts }) {
    if (type === "comm_open") {
      const { comm_id: id, data } = content();
      if (data.state) this.#learn(id, data.state);
    } else if (type === "comm_msg") {
      const { comm_id: id, data } = content();
      if (id === this.#control) this.#learnAll(data.states ?? {});
      else this.#models.get(id)?.hear(data, parts);
    }
  }

  #learnAll(states) {
    for (const [id, { state }] of Object.entries(states)) {
      if (this.#models.has(id) && !this.#missed) continue; // it has heard everything, and what came meanwhile is newer
      this.#learn(id, state);
      // What a thread of the kernel said between its taking of this state and its sending it came to nobody.
      if (state.kind) this.#models.get(id).send({ type: "catch-up" });
    }
    this.#missed = false;
    this.#say("comm_close", { comm_id: this.#control, data: {} });
  }

  #learn(id, state) {
    if (this.#models.has(id)) {
      this.#models.get(id).hear({ method: "update", state });
      return;
    }
    const model = new Model(state, (data, parts) => this.#say("comm_msg", { comm_id: id, data }, parts));
    this.#models.set(id, model);
    for (const resolve of this.#awaited.get(id) ?? []) resolve(model);
    this.#awaited.delete(id);
  }
}

/** Draws the views of the page, each as soon as its place has arrived. */
function draw({ base, id }) {
  const kernel = new Kernel(base, id);
  const views = import(new URL(root.dataset.perfkitWidgets, document.baseURI).href);
  const seen = new Set();
  const drawArrived = () => {
    for (const place of document.querySelectorAll("[data-widget]")) {
      if (seen.has(place)) continue;
      seen.add(place);
      drawIn(place, kernel.model(place.dataset.widget), views).catch((error) => {
        reportError(error);
        window.perfkitPage.couldNotShow(place);
      });
    }
  };
  new MutationObserver(drawArrived).observe(document.getElementById("content"), { childList: true });
  drawArrived();
  window.perfkitPage.whole.then(async () => {
    drawArrived();
    const awaited = () => [...document.querySelectorAll("[data-widget]")].filter((place) => kernel.isAwaited(place.dataset.widget));
    // A kernel in which a thread makes a widget while it counts them fails to answer.
    for (let pause = RETRY_MS; pause <= LONGEST_PAUSE_MS; pause *= 2) {
      await new Promise((resolve) => setTimeout(resolve, pause));
      if (awaited().length) kernel.ask();
    }
    awaited().forEach((place) => window.perfkitPage.couldNotShow(place)); // of a widget that was closed
  });
}

async function drawIn(place, told, loaded) {
  const [model, { render }] = await Promise.all([told, loaded]);
  window.perfkitPage.shows(model);
  render({ model, el: place });
}

window.perfkitPage.kernel.then(draw);
