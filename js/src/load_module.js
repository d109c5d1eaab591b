// The modules of a page, each loaded once: from the app's server, or through the kernel where there is none (JupyterLab).

/** Starts loading the module `name` ("widgets" or "vega") if nobody has; resolves to its exports. */
export function loadModule(model, name) {
  const modules = (globalThis.__perfkitModules ??= {});
  modules[name] ??= start(model, name).catch((error) => {
    delete modules[name];
    throw error;
  });
  return modules[name];
}

async function start(model, name) {
  const served = document.documentElement.getAttribute(`data-perfkit-${name}`);
  if (served) return import(new URL(served, document.baseURI).href);
  const { source, style } = await fromKernel(model, name);
  if (style) document.head.append(Object.assign(document.createElement("style"), { textContent: style }));
  const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
  try {
    return await import(url);
  } finally {
    URL.revokeObjectURL(url);
  }
}

function fromKernel(model, name) {
  return new Promise((resolve) => {
    const onMessage = (message) => {
      if (message?.type !== "module" || message.name !== name) return;
      model.off("msg:custom", onMessage);
      resolve(message);
    };
    model.on("msg:custom", onMessage);
    model.send({ type: "need-module", name });
  });
}
