// The frame of a page: theme, rail, loading state, and what happens when the page or its kernel ends. Runs before Voila's script.
(() => {
  const root = document.documentElement;
  const WIDGET_VIEW = "application/vnd.jupyter.widget-view+json";
  const CHECK_EVERY_MS = 20_000;
  let kernelId = null;
  let views = 0;
  let leaving = false;

  // Voila's script calls these; the page shows itself as it arrives, so there is nothing to do.
  window.voila_heartbeat = window.voila_finish = window.display_cells = window.update_loading_text = () => {};

  window.perfkitPage = {
    /** The kernel runs: from now on, leaving the page ends it. */
    started(id) {
      kernelId = id;
    },

    /** All cells have arrived; Voila's script follows. */
    complete() {
      for (const script of document.querySelectorAll('script[type="application/vnd.voila.cell-output+json"]')) {
        if (script.textContent.includes(WIDGET_VIEW)) views += 1;
      }
      if (views === 0) root.setAttribute("data-perfkit-ready", "0");
      if (views === 0) hideStarting();
    },

    /** How many widgets this page has, for js/src/ready.js. */
    expectedViews: () => views,

    /** On the page of a full house: try again when there is room. */
    waitForRoom() {
      document.getElementById("retry").addEventListener("click", () => location.reload());
      setInterval(async () => {
        const health = await getHealth();
        if (!health) return;
        document.getElementById("busy-pages").textContent = `all ${health.limit}`;
        if (!health.full) location.reload();
      }, 3000);
    },
  };

  const base = () => (document.body.dataset.baseUrl || "/").replace(/voila\/$/, "");

  async function getHealth() {
    try {
      const reply = await fetch(`${base()}perfkit/health`);
      return reply.ok ? await reply.json() : null;
    } catch {
      return null;
    }
  }

  // Leaving ------------------------------------------------------------------

  addEventListener("pagehide", () => {
    leaving = true;
    if (kernelId) navigator.sendBeacon(`${base()}voila/api/shutdown/${kernelId}`);
  });
  // A page taken back from the browser's memory has no kernel any more.
  addEventListener("pageshow", (event) => event.persisted && location.reload());

  // A kernel that ended ------------------------------------------------------

  const NativeSocket = window.WebSocket;
  window.WebSocket = class extends NativeSocket {
    constructor(...args) {
      super(...args);
      if (String(args[0]).includes("/channels")) this.addEventListener("close", () => setTimeout(checkKernel, 1000));
    }
  };
  setInterval(() => document.visibilityState === "visible" && checkKernel(), CHECK_EVERY_MS);
  addEventListener("visibilitychange", () => document.visibilityState === "visible" && checkKernel());

  async function checkKernel() {
    if (!kernelId || leaving) return;
    const health = await getHealth();
    if (leaving) return;
    if (health === null) showEnded("perfkit's server does not answer. Start it again, then reopen this page.");
    else if (!(await kernelLives())) showEnded("The kernel of this page has ended. Reopen it to go on; the view is restored.");
    else document.getElementById("ended").hidden = true;
  }

  async function kernelLives() {
    try {
      const reply = await fetch(`${base()}perfkit/kernel/${kernelId}`);
      return (await reply.json()).alive;
    } catch {
      return false;
    }
  }

  function showEnded(text) {
    document.getElementById("ended-text").textContent = text;
    document.getElementById("ended").hidden = false;
    document.getElementById("content").inert = true;
  }

  // The loading state --------------------------------------------------------

  function hideStarting() {
    document.getElementById("starting")?.remove();
  }
  document.addEventListener("perfkit:begun", hideStarting, { once: true });

  // Theme and rail -----------------------------------------------------------

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
    const rail = document.getElementById("rail");
    const toggle = document.getElementById("rail-toggle");
    toggle.addEventListener("click", () => {
      const open = rail.classList.toggle("rail-open");
      toggle.setAttribute("aria-expanded", String(open));
    });
    document.getElementById("reopen")?.addEventListener("click", () => location.reload());
  });
})();
