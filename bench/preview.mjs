// What `infer-batch preview --sample` takes of a table of ROWS rows (default 100 million) in 20 files:
// `node bench/preview.mjs [ROWS]`. Needs 1.5 GB of disk for 100 million rows.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { DuckDBInstance } from "@duckdb/node-api";
import { parquetFormat, quote } from "./data.mjs";
import { measure } from "./measure.mjs";

const rows = Number(process.argv[2] ?? 100_000_000);
const files = 20;
const at = (path) => fileURLToPath(new URL(path, import.meta.url));
const features = ["age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6"];
const folder = mkdtempSync(join(tmpdir(), "infer-batch-preview-"));

/** A spec without expressions reads a few values of each row; one with `where` needs a query for each. */
const jobs = [
  { says: "no expressions", input: {}, samples: [10, 1000] },
  { says: "with where", input: { where: "id % 2 = 0" }, samples: [10, 100] },
];

try {
  mkdirSync(join(folder, "in"));
  await writeFiles();
  for (const { says, input, samples } of jobs) {
    const spec = join(folder, "job.json");
    const model = { path: at("../fixtures/models/diabetes-mlp.onnx") };
    const output = { columns: ["id"], parquet: { path: "out" } };
    writeFileSync(
      spec,
      JSON.stringify({ version: 1, name: "preview", input: { path: "in/*.parquet", ...input }, model, output }),
    );
    for (const sample of samples) {
      const command = [process.execPath, at("../bin/infer-batch.js"), "preview", spec, "--json"];
      const { cpuSeconds, peakMiB } = await measure([...command, "--sample", String(sample)]);
      console.log(
        `${rows.toLocaleString("en")} rows, ${says}, --sample ${sample}: ${cpuSeconds.toFixed(1)} s of CPU, ${peakMiB.toFixed(0)} MiB at the peak`,
      );
    }
  }
} finally {
  rmSync(folder, { recursive: true });
}

async function writeFiles() {
  const instance = await DuckDBInstance.create(":memory:");
  const connection = await instance.connect();
  const columns = features.map((name, index) => `(hash(id * 10 + ${index}) % 100 / 100)::FLOAT AS ${name}`);
  for (let file = 0; file < files; file += 1) {
    const [from, to] = [file, file + 1].map((one) => Math.floor((one * rows) / files));
    const select = `SELECT id, ${columns.join(", ")} FROM range(${from}, ${to}) AS t(id)`;
    await connection.run(`COPY (${select}) TO ${quote(join(folder, "in", `${file}.parquet`))} ${parquetFormat}`);
  }
  connection.closeSync();
  instance.closeSync();
}
