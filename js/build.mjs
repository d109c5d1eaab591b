// Bundles the browser side of panels and reports. Every bundle starts with the digest of its sources, so that a test can tell a stale one.
// Beside the chart library stand the licences of all that it is made of, which go where it goes.
import { createHash } from "node:crypto";
import { readFile, readdir, writeFile } from "node:fs/promises";
import { build } from "esbuild";

const bundles = [
  { entry: "load/load.js", outfile: "../perfkit/face/widgets/_load.js", sources: ["load/load.js", "src/load_module.js"] },
  { entry: "src/widgets.js", outfile: "../perfkit/face/widgets/_widgets.js", sources: await sourcesBeside("src") },
  { entry: "vega/vega.js", outfile: "../perfkit/face/charts/_vega.js", sources: ["vega/vega.js", "package-lock.json"] },
  { entry: "report/report.js", outfile: "../perfkit/face/report/_report.js", sources: ["report/report.js", ...["chart", "dom", "load_module", "narrow", "shares", "table", "texts", "theme", "tips"].map((name) => `src/${name}.js`)] },
];

for (const { entry, outfile, sources } of bundles) {
  await build({
    entryPoints: [entry],
    outfile,
    bundle: true,
    minify: true,
    format: "esm",
    target: "es2022",
    charset: "utf8",
    legalComments: "none",
    banner: { js: `/* sources ${await digest(sources)}; built from js/ by "make js"; see js/README.md */` },
    // d3-fetch and vega-loader can read files under node; the browser never does.
    external: ["node:*", "fs"],
  });
}

await writeFile("../perfkit/face/charts/_vega.licences.txt", await licences());

async function licences() {
  const { packages } = JSON.parse(await readFile("package-lock.json", "utf8"));
  const namesByText = new Map();
  for (const [path, { version, dev }] of Object.entries(packages)) {
    if (!path || dev) continue;
    const files = (await readdir(path)).filter((name) => /^(licen[cs]e|copying|notice)/i.test(name)).sort();
    if (files.length === 0) throw new Error(`${path} has no licence`);
    const texts = await Promise.all(files.map((name) => readFile(`${path}/${name}`, "utf8")));
    const text = texts.map((each) => each.replaceAll("\r\n", "\n").trim()).join("\n\n");
    namesByText.set(text, [...(namesByText.get(text) ?? []), `${path.replace(/.*node_modules\//, "")} ${version}`]);
  }
  const head = `sources ${await digest(["package-lock.json"])}: the licences of what _vega.js is made of; built from js/ by "make js"`;
  const parts = [...namesByText].map(([text, names]) => `${"=".repeat(80)}\n${names.sort().join("\n")}\n\n${text}`);
  return `${[head, ...parts].join("\n\n")}\n`;
}

async function sourcesBeside(folder) {
  const names = await readdir(folder);
  return names.filter((name) => name.endsWith(".js")).sort().map((name) => `${folder}/${name}`);
}

async function digest(files) {
  const hash = createHash("sha256");
  for (const file of files) hash.update(await readFile(file));
  return hash.digest("hex").slice(0, 16);
}
