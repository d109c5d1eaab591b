// The chart library, loaded once a page: from the app's server, or through the kernel where there is none (JupyterLab).

const KEY = "__perfkitVega";

/** Starts loading if nobody has; resolves to the module built from vega/vega.js. */
export function loadVega(model) {
  globalThis[KEY] ??= start(model).catch((error) => {
    delete globalThis[KEY];
    throw error;
  });
  return globalThis[KEY];
}

async function start(model) {
  const served = document.documentElement.dataset.perfkitVega;
  if (served) return import(new URL(served, document.baseURI).href);
  const source = await fromKernel(model);
  const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
  try {
    return await import(url);
  } finally {
    URL.revokeObjectURL(url);
  }
}

function fromKernel(model) {
  return new Promise((resolve) => {
    const onMessage = (message) => {
      if (message?.type !== "vega") return;
      model.off("msg:custom", onMessage);
      resolve(message.source);
    };
    model.on("msg:custom", onMessage);
    model.send({ type: "need-vega" });
  });
}
