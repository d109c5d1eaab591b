// The frame of a page: theme, rail, loading state, and what happens when the page or its kernel ends. Runs before its widgets' script.
(() => {
  const root = document.documentElement;
  let kernelId = null;
  let leaving = false;
  let isWhole = false;
  let tellKernel, tellWhole;
  const kernel = new Promise((resolve) => (tellKernel = resolve));
  const whole = new Promise((resolve) => (tellWhole = resolve));

  // The address: what stands after # is for the page alone, and a kernel that begins without it draws something else first ------

  const SERVERS_OWN = ["project", "token"];
  const LONGEST_QUERY = 4000;

  /** The query that tells the server what `hash` says too, or none if it would be too long. */
  function queryOf(search, hash) {
    const query = new URLSearchParams(search);
    for (const [name, value] of new URLSearchParams(hash.slice(1))) if (!SERVERS_OWN.includes(name)) query.set(name, value);
    const text = query.toString();
    return text && text.length < LONGEST_QUERY ? `?${text}` : "";
  }

  addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href]");
    const leads = link?.hash && link.origin === location.origin && link.pathname !== location.pathname && !link.hasAttribute("download");
    if (leads) link.search = queryOf(link.search, link.hash) || link.search;
  }, { capture: true });

  window.perfkitPage = {
    /** Before anything is computed: an address that was typed, kept or read anew is asked for again, with what its # says. */
    begin() {
      const query = queryOf(location.search, location.hash);
      if (!query || query === queryOf(location.search, "")) return;
      window.stop(); // else the browser hears this answer to its end while it waits for the other
      location.replace(Object.assign(new URL(location), { search: query }));
    },

    /** The kernel runs: from now on, leaving the page ends it. */
    started(id) {
      kernelId = id;
      tellKernel({ base: base(), id });
      holdPresence();
    },

    /** Resolves to the address of the server and the kernel's id, once it runs. */
    kernel,

    /** All cells have arrived. */
    complete() {
      isWhole = true;
      tellWhole();
      if (expectedViews()) return;
      root.setAttribute("data-perfkit-ready", "0");
      hideStarting();
    },

    /** Resolves when all cells have arrived: what stands in the address is for widgets that may yet come. */
    whole,

    /** How many widgets this page has, for js/src/ready.js. */
    expectedViews,

    /** Whether somebody is there, and the kernel too. */
    isHere: () => !leaving && failures <= FAILURES,

    /** What should stand in `place` could not be drawn: the page says so there, and shows the rest. */
    couldNotShow(place) {
      delete place.dataset.widget;
      place.className = "cell cell-error";
      place.setAttribute("role", "alert");
      place.textContent = document.getElementById("content").dataset.broken;
      hideStarting();
    },

    /** A widget is shown: a panel gets back what it had. */
    shows(model) {
      if (model.get("kind") !== "panel") return;
      panels.push(model);
      giveBack(model, kept[model.get("name")]);
    },

    /** On the page of a full house: try again when there is room. */
    waitForRoom() {
      document.getElementById("retry").addEventListener("click", () => location.reload());
      setInterval(async () => {
        const health = await getHealth();
        if (!health || health.locked) return;
        const count = document.getElementById("busy-pages"); // not there where the visitor's own limit is reached
        if (count) count.textContent = health.limit;
        if (!health.full) location.reload();
      }, 3000);
    },
  };

  const base = () => document.body.dataset.baseUrl || "/";

  function expectedViews() {
    return isWhole ? document.querySelectorAll("[data-widget]").length : Infinity;
  }

  /** What the server says of itself; `locked` if it does not know this browser any more, null if it does not answer. */
  async function getHealth() {
    try {
      const reply = await fetch(`${base()}perfkit/health`);
      if (reply.redirected || reply.status === 401 || reply.status === 403) return { locked: true };
      return reply.ok ? await reply.json() : null;
    } catch {
      return null;
    }
  }

  // Leaving ------------------------------------------------------------------

  function endKernel() {
    if (kernelId) navigator.sendBeacon(`${base()}voila/api/shutdown/${kernelId}`);
  }

  // A page is hidden only once the next one has answered, which may have to wait for the room that this one takes.
  addEventListener("beforeunload", endKernel);
  addEventListener("pagehide", () => {
    leaving = true;
    endKernel();
  });
  // A page taken back from the browser's memory has no kernel any more.
  addEventListener("pageshow", (event) => event.persisted && location.reload());

  // Presence: the server ends the kernel when this socket closes, and says so when the kernel ended ---------------------------

  const FAILURES = 2;
  let failures = 0;

  function holdPresence() {
    const socket = new WebSocket(`${base().replace(/^/, location.origin.replace(/^http/, "ws"))}perfkit/presence/${kernelId}`);
    socket.addEventListener("open", () => {
      failures = 0;
    });
    socket.addEventListener("message", (event) => {
      const { ended, text } = JSON.parse(event.data);
      if (!ended) return;
      leaving = true;
      showEnded(text);
    });
    socket.addEventListener("close", () => {
      if (leaving) return;
      failures += 1;
      if (failures > FAILURES) showEnded(document.getElementById("reopen").dataset.away);
      setTimeout(failures > FAILURES ? reopenOnceThere : holdPresence, 1000);
    });
  }

  /** The server was away: its kernels are gone, and the page begins anew as soon as it answers. */
  async function reopenOnceThere() {
    const health = await getHealth();
    if (health?.locked) showEnded(document.getElementById("reopen").dataset.locked); // "Reopen" leads to the page that asks
    else if (health) reopen();
    else setTimeout(reopenOnceThere, 2000);
  }

  function showEnded(text) {
    document.getElementById("ended-text").textContent = text;
    document.getElementById("ended").hidden = false;
    document.getElementById("content").inert = true;
  }

  // Choices: what stands in the controls of a page whose kernel has ended comes back with the next one ----------------------

  const KEPT = `perfkit-choices:${location.pathname}`;

  function reopen() {
    const choices = {};
    for (const panel of panels) {
      const shown = panel.get("controls").filter((control) => !control.hidden);
      choices[panel.get("name")] = Object.fromEntries(shown.map((control) => [control.name, control.value]));
    }
    try {
      sessionStorage.setItem(KEPT, JSON.stringify(choices));
    } catch {
      // Private mode: what stands in the address comes back.
    }
    location.reload();
  }

  const panels = [];
  const kept = (() => {
    try {
      const text = sessionStorage.getItem(KEPT);
      sessionStorage.removeItem(KEPT);
      return JSON.parse(text) ?? {};
    } catch {
      return {};
    }
  })();

  function giveBack(model, choices) {
    if (!choices) return;
    const controls = model.get("controls");
    if (!controls.length) {
      model.once("change:controls", () => giveBack(model, choices));
      return;
    }
    const other = controls.filter(({ name, value }) => name in choices && JSON.stringify(choices[name]) !== JSON.stringify(value));
    if (other.length) model.send({ type: "set", seq: 0, values: Object.fromEntries(other.map(({ name }) => [name, choices[name]])) });
  }

  // The loading state --------------------------------------------------------

  const breath = setInterval(() => document.getElementById("starting")?.classList.toggle("faint"), 700);

  function hideStarting() {
    clearInterval(breath);
    document.getElementById("starting")?.remove();
  }
  document.addEventListener("perfkit:begun", hideStarting, { once: true });

  /** For the server, a year long, on this app only. */
  function remember(name, value) {
    document.cookie = `${name}=${value}; path=${base()}; max-age=31536000; samesite=lax`;
  }

  // Code of the steps: the lines of the notebook, to be copied into one's own -----------------------------------------------

  addEventListener("click", async ({ target }) => {
    if (!target.matches?.(".cell-source button")) return;
    await navigator.clipboard.writeText(target.parentElement.querySelector("pre").textContent);
    const before = target.textContent;
    target.textContent = target.dataset.copied;
    setTimeout(() => (target.textContent = before), 1500);
  });

  // Tour: what is where, for a newcomer; where it was ended it goes on -------------------------------------------------------

  const TOUR = "perfkit-tour";

  function followTour(begin, dialog) {
    if (!begin) return;
    begin.hidden = !dialog; // pages without a kernel have nothing to show
    if (!dialog) return;
    const steps = [...dialog.querySelectorAll("li")];
    let at = 0;
    let shown = null;
    const keep = (value) => {
      try {
        localStorage.setItem(TOUR, value);
      } catch {
        // Private mode: it begins anew on the next page.
      }
    };
    const unmark = () => shown?.classList.remove("tour-at");
    const show = () => {
      unmark();
      steps.forEach((step, index) => (step.hidden = index !== at));
      dialog.querySelector(".tour-count").textContent = `${at + 1} / ${steps.length}`;
      dialog.querySelector("[data-turn=back]").disabled = at === 0;
      dialog.querySelector("[data-turn=on]").hidden = at === steps.length - 1;
      shown = [...document.querySelectorAll(steps[at].dataset.at)].find((one) => one.checkVisibility()) ?? null;
      shown?.classList.add("tour-at");
      shown?.scrollIntoView({ block: "nearest" });
      const box = shown?.getBoundingClientRect() ?? { left: 16, right: 16, top: 70, bottom: 70, height: 0 };
      const below = box.bottom + dialog.offsetHeight + 24 < innerHeight;
      const left = box.height > innerHeight / 2 ? box.right + 12 : box.left;
      dialog.style.left = `${Math.max(12, Math.min(left, innerWidth - dialog.offsetWidth - 12))}px`;
      dialog.style.top = `${below ? box.bottom + 12 : Math.max(64, Math.min(box.top, innerHeight) - dialog.offsetHeight - 12)}px`;
      keep(String(at));
    };
    begin.addEventListener("click", () => {
      document.getElementById("rail").classList.remove("rail-open");
      try {
        at = Math.min(Number(localStorage.getItem(TOUR)) || 0, steps.length - 1);
      } catch {
        at = 0;
      }
      dialog.showModal();
      show();
    });
    dialog.addEventListener("click", ({ target }) => {
      const turn = target.dataset?.turn;
      if (turn === "end") dialog.close();
      if (turn !== "on" && turn !== "back") return;
      at += turn === "on" ? 1 : -1;
      show();
    });
    dialog.addEventListener("close", () => {
      unmark();
      if (at === steps.length - 1) keep("0");
    });
  }

  // Theme, language and rail -----------------------------------------------------------

  /** The rail folds to the numbers of the pages, and stays so. */
  function followFold(button) {
    if (!button) return;
    const draw = () => button.setAttribute("aria-pressed", String(root.dataset.rail === "folded"));
    button.addEventListener("click", () => {
      if (root.dataset.rail) delete root.dataset.rail;
      else root.dataset.rail = "folded";
      draw();
      dispatchEvent(new Event("resize"));
      try {
        if (root.dataset.rail) localStorage.setItem("perfkit-rail", "folded");
        else localStorage.removeItem("perfkit-rail");
      } catch {
        // Private mode: the choice lasts for this page.
      }
    });
    draw();
  }

  function isDark() {
    return root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }

  addEventListener("DOMContentLoaded", () => {
    document.getElementById("theme-toggle").addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      try {
        localStorage.setItem("perfkit-theme", root.dataset.theme);
      } catch {
        // Private mode: the choice lasts for this page.
      }
    });
    document.getElementById("language").addEventListener("change", (event) => {
      remember("perfkit-language", event.target.value);
      location.reload();
    });
    const nameButton = document.getElementById("name-button");
    const known = document.cookie.match(/(?:^|; )perfkit-name=([^;]*)/);
    if (known) nameButton.textContent = decodeURIComponent(known[1]);
    nameButton.addEventListener("click", () => {
      const name = prompt(nameButton.dataset.question, known ? decodeURIComponent(known[1]) : "");
      if (name === null) return;
      remember("perfkit-name", encodeURIComponent(name.trim().slice(0, 60)));
      location.reload();
    });
    const rail = document.getElementById("rail");
    rail?.querySelector("[aria-current=page]")?.scrollIntoView({ block: "nearest" });
    followFold(document.getElementById("rail-fold"));
    followTour(document.getElementById("tour-begin"), document.getElementById("tour"));
    const toggle = document.getElementById("rail-toggle");
    toggle.addEventListener("click", () => {
      const open = rail.classList.toggle("rail-open");
      toggle.setAttribute("aria-expanded", String(open));
    });
    const enter = document.getElementById("enter"); // on the doorstep: what the link says after # goes along
    if (enter) enter.hash = location.hash;
    document.getElementById("reopen")?.addEventListener("click", reopen);
  });
})();
