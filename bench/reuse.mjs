// What reuse costs and saves: the second night of a job, of whose rows a share changed, scored as a whole and with reuse.
import { mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { DuckDBInstance } from "@duckdb/node-api";
import { dataFolder, parquetFormat, quote } from "./data.mjs";
import { forestFile, largeForests, prepareForest } from "./forests.mjs";
import { measure, median } from "./measure.mjs";
import { bigModel, prepareBigModel } from "./models.mjs";
import { machine } from "./report.mjs";

const fixture = (name) => fileURLToPath(new URL(`../fixtures/models/${name}.onnx`, import.meta.url));
const lightgbm = { path: fixture("bench-lightgbm"), outputs: { score: "probabilities[1]" } };
const forest = { path: forestFile(largeForests.forest), prepare: () => prepareForest(largeForests.forest) };

/** By what a row costs them, about. */
const models = {
  linear: { says: "linear: what a run costs without its model", path: fixture("bench-linear") },
  trees: { says: "200 trees, compiled", ...lightgbm },
  "trees-onnx": { says: "200 trees, ONNX Runtime", ...lightgbm, trees: "onnxruntime" },
  forest: { says: "1,000 trees, compiled", ...forest },
  big: { says: "MLP 32-1024-1024-1", path: bigModel, prepare: prepareBigModel },
};

const usage = `Usage: node bench/reuse.mjs [options]

Makes two nights of a table in bench/data/reuse/, and prints the CPU time of the second one: scored as a whole, and with
reuse. Removes them again.

  --rows <n>       rows of a night (default 4000000)
  --changed <p>    percentage of rows that change (default 5)
  --runs <n>       medians of so many, in turn (default 3)
  --model <name>   ${Object.keys(models).join(", ")}; may be repeated (default all but big)
  --memory <size>  engine.memory of both (default auto)
  --shuffled       the second night has its rows in another order
  --help           show this
`;

const { values: options } = parseArgs({
  options: {
    rows: { type: "string", default: "4000000" },
    changed: { type: "string", default: "5" },
    runs: { type: "string", default: "3" },
    model: { type: "string", multiple: true, default: ["linear", "trees", "trees-onnx", "forest"] },
    memory: { type: "string" },
    shuffled: { type: "boolean", default: false },
    help: { type: "boolean", default: false },
  },
});

const program = fileURLToPath(new URL("../bin/infer-batch.js", import.meta.url));
const folder = join(dataFolder, "reuse");
const rows = Number(options.rows);
const nights = { first: "2026-01-01", second: "2026-01-02" };

async function query(sql) {
  const instance = await DuckDBInstance.create(":memory:");
  const connection = await instance.connect();
  try {
    return (await connection.runAndReadAll(sql)).getRows();
  } finally {
    connection.closeSync();
    instance.closeSync();
  }
}

/** id BIGINT, f0 to f31 FLOAT within -5..5; in the second night one feature of a share of the rows is another. */
async function makeNights() {
  const features = Array.from(
    { length: 32 },
    (_, index) => `(hash(id * 32 + ${index}) % 100000 / 10000.0 - 5)::FLOAT AS f${index}`,
  );
  const changed = `hash(id) % 1000 < ${Number(options.changed) * 10}`;
  const second = `* REPLACE (CASE WHEN ${changed} THEN f7 + 1 ELSE f7 END AS f7)`;
  for (const [night, columns, order] of [
    [nights.first, "*", ""],
    [nights.second, second, options.shuffled ? "ORDER BY hash(id)" : ""],
  ]) {
    const all = `SELECT id, ${features.join(", ")} FROM range(${rows}) AS t(id)`;
    const path = join(folder, "in", `${night}.parquet`);
    await query(`COPY (SELECT ${columns} FROM (${all}) ${order}) TO ${quote(path)} ${parquetFormat}`);
  }
}

/** @param {{ model: object, reuse: boolean }} way */
async function writeSpec({ model: { path: file, outputs, trees = "auto" }, reuse }) {
  const spec = {
    version: 1,
    name: reuse ? "bench-reuse" : "bench-all",
    params: { ds: "${today}" },
    input: { path: "in/${ds}.parquet" },
    model: { path: file, ...(outputs === undefined ? {} : { outputs }) },
    engine: { trees, ...(options.memory === undefined ? {} : { memory: options.memory }) },
    ...(reuse ? { reuse: { key: ["id"] } } : {}),
    output: { columns: ["id"], parquet: { path: `${reuse ? "out" : "out-all"}/dt=\${ds}` } },
  };
  const path = join(folder, `${reuse ? "reuse" : "all"}.json`);
  await writeFile(path, JSON.stringify(spec));
  return path;
}

async function run(way, night) {
  const spec = await writeSpec(way);
  await rm(join(folder, way.reuse ? "out" : "out-all", `dt=${night}`), { recursive: true, force: true });
  const taken = await measure([process.execPath, program, "run", spec, "--param", `ds=${night}`, "--json"]);
  return { ...taken, report: JSON.parse(taken.said.trimEnd().split("\n").at(-1)) };
}

/** The two ways give the same predictions. */
async function checkSame() {
  const [one, other] = ["out", "out-all"].map((out) => quote(join(folder, out, `dt=${nights.second}`, "*.parquet")));
  const [row = []] = await query(
    `SELECT count(*) FILTER (WHERE a.score IS DISTINCT FROM b.score)::DOUBLE, count(*)::DOUBLE FROM read_parquet(${one}) a FULL JOIN read_parquet(${other}) b USING (id)`,
  );
  const [wrong, found] = row.map(Number);
  if (wrong !== 0 || found !== rows) {
    throw new Error(`checking the predictions: ${wrong} differ, of ${found} rows`);
  }
}

async function compare(model) {
  await model.prepare?.();
  const first = await run({ model, reuse: true }, nights.first);
  const taken = { all: [], reuse: [], peak: [], wall: [], allWall: [] };
  let reused = 0;
  for (let round = 1; round <= Number(options.runs); round += 1) {
    const all = await run({ model, reuse: false }, nights.second);
    const some = await run({ model, reuse: true }, nights.second);
    taken.all.push(all.cpuSeconds);
    taken.reuse.push(some.cpuSeconds);
    taken.peak.push(some.peakMiB);
    taken.wall.push(some.seconds);
    taken.allWall.push(all.seconds);
    reused = some.report.rows_reused;
    console.error(
      `  ${model.says}, run ${round}: ${all.cpuSeconds.toFixed(1)} and ${some.cpuSeconds.toFixed(1)} s of CPU time, ${some.peakMiB.toFixed(0)} MiB`,
    );
  }
  await checkSame();
  const [all, reuse, peak, wall, allWall] = ["all", "reuse", "peak", "wall", "allWall"].map((of) => median(taken[of]));
  return { first: first.cpuSeconds, all, reuse, reused, peak, wall, allWall };
}

if (options.help) {
  console.log(usage);
} else {
  await rm(folder, { recursive: true, force: true });
  await mkdir(join(folder, "in"), { recursive: true });
  await makeNights();
  console.log(machine());
  console.log(`${rows} rows, ${options.changed}% changed${options.shuffled ? ", in another order" : ""}\n`);
  console.log("CPU seconds of whole processes, wall seconds in brackets.\n");
  console.log("| model | first night | all scored | with reuse | times | peak with reuse | reused |");
  console.log("| --- | ---: | ---: | ---: | ---: | ---: | ---: |");
  for (const name of options.model) {
    const { first, all, reuse, reused, peak, wall, allWall } = await compare(models[name]);
    const seconds = [`${all.toFixed(1)} (${allWall.toFixed(1)})`, `${reuse.toFixed(1)} (${wall.toFixed(1)})`].join(
      " | ",
    );
    console.log(
      `| ${models[name].says} | ${first.toFixed(1)} | ${seconds} | ${(all / reuse).toFixed(2)} | ${peak.toFixed(0)} MiB | ${reused} |`,
    );
  }
  await rm(folder, { recursive: true, force: true });
}
