// Makes docs/pictures/held.png and published.png: the HTML pages of two nights, as a browser shows them. Needs Chromium; run
// it by hand after a change of the page.
import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { DuckDBInstance } from "@duckdb/node-api";

const project = fileURLToPath(new URL("..", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "infer-batch-pictures-"));
const nights = 15;
const dayOf = (night) => new Date(Date.UTC(2026, 10, 7 + night)).toISOString().slice(0, 10);

writeFileSync(
  join(folder, "job.yaml"),
  `version: 1
name: daily-penguins
params: { ds: "\${today}" }
input: { path: "data/dt=\${ds}/*.parquet" }
model:
  path: ${project}fixtures/models/penguins-pipeline.onnx
  outputs: { probability: "probabilities[0]" }
output:
  columns: [row_id]
  parquet: { path: "out/dt=\${ds}" }
checks: { unique: [row_id] }
report: { html: "pages/\${ds}.html" }
`,
);

const db = await (await DuckDBInstance.create()).connect();
for (let night = 0; night < nights; night += 1) {
  const data = join(folder, `data/dt=${dayOf(night)}`);
  mkdirSync(data, { recursive: true });
  const source = `read_parquet('${project}fixtures/data/penguins_complete/*.parquet')`;
  const grams = night === nights - 1 ? "body_mass_g / 1000" : "body_mass_g"; // tonight the features are in kilograms
  await db.run(
    `COPY (SELECT * REPLACE (${grams} AS body_mass_g) FROM ${source} USING SAMPLE 90% (bernoulli, ${night + 1})) TO '${data}/part-0.parquet'`,
  );
  const run = [join(project, "bin/infer-batch.js"), "run", "job.yaml", "--param", `ds=${dayOf(night)}`, "--quiet"];
  const { status, stderr } = spawnSync(process.execPath, run, { cwd: folder, encoding: "utf8" });
  if (status !== (night === nights - 1 ? 67 : 0)) {
    throw new Error(stderr);
  }
}
for (const [name, night, height] of [
  ["held", nights - 1, 550],
  ["published", nights - 2, 445],
]) {
  execFileSync("chromium", [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    `--window-size=900,${height}`,
    `--screenshot=${join(project, `docs/pictures/${name}.png`)}`,
    `file://${join(folder, `pages/${dayOf(night)}.html`)}`,
  ]);
}
rmSync(folder, { recursive: true });
