// The charts of a report: every place `data-chart` gets the chart of that number. The chart library stands on the same page.
import { Chart } from "../src/chart.js";

const charts = JSON.parse(document.getElementById("perfkit-charts").textContent);
const nobody = () => {}; // a report has no kernel that would hear of clicks

const drawn = [...document.querySelectorAll("[data-chart]")].map((place) => {
  const { description, datasets, params } = charts[Number(place.dataset.chart)];
  const chart = new Chart(null, nobody);
  place.replaceChildren(chart.root);
  return chart.rebuild(description, datasets, params);
});
Promise.all(drawn).then(() => document.documentElement.setAttribute("data-perfkit-ready", String(drawn.length)));
