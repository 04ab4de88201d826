// Texts to embeddings: whole jobs of infer-batch, of a plain Python loop, and of one that sorts its texts by length, in
// turns. `npm run build && node bench/texts.mjs [--rows N] [--runs N]`, after
// `bench/data/venv/bin/pip install onnx tokenizers`.
import { execFileSync } from "node:child_process";
import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { DuckDBInstance } from "@duckdb/node-api";
import { outFolder } from "./contenders.mjs";
import { dataFolder } from "./data.mjs";
import { measure, median, readThrough } from "./measure.mjs";
import { findPython } from "./python.mjs";
import { machine } from "./report.mjs";

const { values: options } = parseArgs({
  options: { rows: { type: "string", default: "3000" }, runs: { type: "string", default: "5" } },
});
const tolerance = 1e-5;
const most = "256";
/** What sentence-transformers takes by default. */
const batchSize = "32";
const path = (name) => fileURLToPath(new URL(name, import.meta.url));
const folder = join(dataFolder, "texts");
const table = join(folder, "texts.parquet");
const model = join(folder, "encoder.onnx");
const tokenizer = path("../fixtures/tokenizers/bert.json");
const { interpreter, versions, absent } = findPython();
if (absent !== undefined) {
  throw new Error(absent);
}

execFileSync(interpreter, [
  path("peers/texts_data.py"),
  path("../fixtures/tokenizers/texts.json"),
  folder,
  options.rows,
]);
mkdirSync(outFolder, { recursive: true });
const python = (output, ...flags) => ({
  output: join(outFolder, output),
  command: [
    interpreter,
    path("peers/loop_texts.py"),
    ...flags,
    model,
    tokenizer,
    most,
    batchSize,
    join(outFolder, output),
    table,
  ],
});
const contenders = [
  {
    name: "infer-batch",
    output: join(outFolder, "texts/*.parquet"),
    command: [process.execPath, path("../bin/infer-batch.js"), "run", path("jobs/texts.yaml"), "--quiet"],
  },
  { name: `plain Python loop, batch ${batchSize}`, ...python("loop.parquet") },
  { name: `Python, sorted by length, batch ${batchSize}`, ...python("sorted.parquet", "--sort") },
];
const taken = new Map(contenders.map(({ name }) => [name, []]));
for (let round = 0; round <= Number(options.runs); round += 1) {
  rmSync(join(outFolder, "texts"), { recursive: true, force: true });
  // Each is the first one in one round of three.
  for (let turn = 0; turn < contenders.length; turn += 1) {
    const { name, command } = contenders[(round + turn) % contenders.length];
    readThrough([table, model, tokenizer]);
    const one = await measure(command);
    if (round > 0) {
      taken.get(name).push(one); // the first round warms up
    }
  }
}
const [own, ...others] = contenders;
for (const other of others) {
  await verify(own, other);
}

/** The ratio of each round: other work on the machine changes less of it than of the seconds. */
const ratioOf = (name, key) => median(taken.get(name).map((one, index) => one[key] / taken.get(own.name)[index][key]));
console.log(`${options.rows} texts, medians of ${options.runs} runs in turns; ${versions.join(", ")}; ${machine()}`);
console.table(
  contenders.map(({ name }) => {
    const times = taken.get(name);
    return {
      contender: name,
      "CPU, s": median(times.map(({ cpuSeconds }) => cpuSeconds)).toFixed(2),
      "wall, s": median(times.map(({ seconds }) => seconds)).toFixed(2),
      "CPU / infer-batch": ratioOf(name, "cpuSeconds").toFixed(2),
      "wall / infer-batch": ratioOf(name, "seconds").toFixed(2),
    };
  }),
);
rmSync(outFolder, { recursive: true, force: true });

/** Each id once, and embeddings that are equal within the tolerance. */
async function verify(one, other) {
  const instance = await DuckDBInstance.create(":memory:");
  const connection = await instance.connect();
  try {
    const sql = `SELECT count(*) AS rows, max(list_max(list_transform(list_zip(a.embedding, b.embedding), p -> abs(p[1] - p[2])))) AS far
      FROM '${one.output}' a JOIN '${other.output}' b USING (id) WHERE len(a.embedding) = len(b.embedding)`;
    const [found] = (await connection.runAndReadAll(sql)).getRowObjects();
    const [rows, far] = [Number(found?.rows), Number(found?.far)];
    if (rows !== Number(options.rows) || !(far <= tolerance)) {
      throw new Error(`comparing ${one.name} with ${other.name}: ${rows} equal ids, greatest difference ${far}`);
    }
  } finally {
    connection.closeSync();
    instance.closeSync();
  }
}
