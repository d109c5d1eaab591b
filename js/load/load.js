// All that a widget brings along: it has its page load the views (src/widgets.js), which all widgets of the page have in common.
import { loadModule } from "../src/load_module.js";

export default {
  initialize({ model }) {
    // From here on the model hears the kernel. A panel that was busy meanwhile has said things to nobody.
    model.send({ type: "catch-up" });
    loadModule(model, "widgets");
  },

  async render(context) {
    const views = await loadModule(context.model, "widgets");
    return views.render(context);
  },
};
