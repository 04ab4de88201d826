// What bench/gpu measures. Each part returns the rows of a table, its head first.
import { execFile } from "node:child_process";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { DuckDBInstance } from "@duckdb/node-api";
import { median } from "../measure.mjs";
import { findPython } from "../python.mjs";
import { command, fail, lastJson, lastLines, longestMs, program, score } from "./commands.mjs";
import { every, first, writeSpec } from "./tables.mjs";

const peer = fileURLToPath(new URL("peer_binding.py", import.meta.url));

/**
 * @typedef {object} Tools
 * @property {readonly string[]} providers that work here, the CPU first
 * @property {Readonly<Record<string, string>>} env
 * @property {string} folder a temporary one
 * @property {number} runs of each job
 */
/** @typedef {readonly (readonly string[])[]} Rows */

const grouped = (number) => (number === undefined ? "–" : Math.round(number).toLocaleString("en-US"));
const gpusOf = ({ providers }) => providers.filter((provider) => provider !== "cpu");

/**
 * What doctor says of each provider that works.
 * @returns {Rows}
 */
export function doctorRows(trials, { providers }) {
  const rows = providers.map((name) => {
    const { provider, device, operators, ms } = trials.find((trial) => trial.provider === name);
    const all = Object.values(operators).reduce((sum, count) => sum + count, 0);
    return [provider, device ?? "–", `${operators[provider] ?? 0} of ${all}`, ms?.toFixed(1) ?? "–"];
  });
  return [["provider", "device", "operators on it", "ms a batch of one row"], ...rows];
}

const passed = (tests) => tests.filter(({ status }) => status === "passed").length;

/**
 * The predictions of every fixture on each provider, compared with Python's on a CPU.
 * @param {Tools} tools
 * @returns {Rows}
 */
export function goldenRows(tools) {
  const rows = gpusOf(tools).map((provider) => {
    const args = ["vitest", "run", "test/run/gpu.test.ts", "--reporter=json"];
    // In TF32, CUDA's sums have 10 bits.
    const { found, said } = command(args, {
      env: { ...tools.env, INFER_BATCH_GPU: provider, NVIDIA_TF32_OVERRIDE: "0" },
      file: ["npx"],
    });
    if (found === undefined) {
      throw new Error(`testing the fixtures on ${provider}: ${lastLines(said)}`);
    }
    const tests = found.testResults.flatMap((file) => file.assertionResults);
    for (const { fullName, failureMessages } of tests.filter(({ status }) => status === "failed")) {
      fail(`${fullName}: ${lastLines(failureMessages.join("\n"))}`);
    }
    const [killed, compared] = [true, false].map((isKilled) =>
      tests.filter(({ title }) => title.includes("killed") === isKilled),
    );
    const once = killed.length > 0 && passed(killed) === killed.length ? "each row once" : "failed";
    return [provider, `${passed(compared)}`, `${compared.length - passed(compared)}`, once];
  });
  const counted = ["fixtures with the same predictions as Python on a CPU", "with different ones"];
  return [["provider", ...counted, "one of them, killed five times and resumed"], ...rows];
}

/**
 * Rows/s of the model alone, by rows in a batch.
 * @param {import("./tables.mjs").GpuJob} job
 * @param {Tools} tools
 * @returns {Promise<Rows>}
 */
export async function curveRows(job, { providers, env, folder }) {
  const curves = new Map();
  for (const provider of providers) {
    const path = join(folder, "curve.yaml");
    const spec = await writeSpec(job, { path, output: join(folder, "curve"), engine: { providers: [provider] } });
    const { found, said } = command(["doctor", spec, "--json"], { env });
    if (found === undefined) {
      throw new Error(`trying batch sizes on ${provider}: ${lastLines(said)}`);
    }
    const lines = found.speeds.filter(({ sessions }) => sessions === 1);
    curves.set(provider, new Map(lines.map(({ batch_size, rows_per_second }) => [batch_size, rows_per_second])));
  }
  const tried = [...curves.values()].flatMap((curve) => Array.from(curve.keys()));
  const sizes = [...new Set(tried)].toSorted((a, b) => a - b);
  const rows = sizes.map((size) => [grouped(size)].concat(providers.map((one) => grouped(curves.get(one).get(size)))));
  return [["rows in a batch", ...providers], ...rows];
}

/**
 * Whole jobs, from Parquet to Parquet, beside Python's loop with io binding.
 * @param {readonly import("./tables.mjs").GpuJob[]} jobs
 * @param {Tools} tools
 * @returns {Promise<Rows>}
 */
export async function jobsRows(jobs, tools) {
  const python = findPython();
  if (python.absent !== undefined) {
    console.error(`  without Python: ${python.absent}`);
  }
  const rows = [];
  for (const job of jobs) {
    for (const provider of tools.providers) {
      console.error(`  ${job.id} on ${provider}`);
      rows.push(await jobRow(job, { ...tools, provider, python }));
    }
  }
  const measured = ["rows/s", "engine busy", "rows in a batch", "largest difference from cpu"];
  return [["model", "provider", ...measured, "Python with io binding, rows/s", "ratio to it"], ...rows];
}

async function jobRow(job, { provider, python, runs: wanted, env, folder }) {
  const isReference = provider === "cpu"; // the first file, once: it takes minutes, and is there to be compared with only
  const runs = isReference ? 1 : wanted;
  const found = [];
  for (let run = 0; run < runs; run += 1) {
    const ran = await score(job, {
      provider,
      env,
      folder,
      output: `out-${provider}`,
      files: isReference ? first : every,
    });
    if (ran.code !== 0) {
      return [job.what, provider, `exit code ${ran.code}`, "–", "–", "–", "–", "–"];
    }
    found.push(ran.found);
  }
  const rate = median(found.map((one) => one.rows_per_second));
  const busy = median(found.map((one) => one.engine_busy)).toFixed(2);
  const apart = isReference ? "–" : await largestDifference(join(folder, "out-cpu"), join(folder, `out-${provider}`));
  const peers = Array.from({ length: runs }, () => peerRate(job, { python, provider, env, folder }));
  const other = peers.includes(undefined) ? undefined : median(peers);
  const ratio = other === undefined ? "–" : (rate / other).toFixed(2);
  return [job.what, provider, grouped(rate), busy, grouped(found[0].batch_size), apart, grouped(other), ratio];
}

/** The best rate of Python's loop over a few batch sizes; undefined: it cannot run here. */
function peerRate(job, { python, provider, env, folder }) {
  if (python.absent !== undefined || provider === "cpu" || provider === "webgpu") {
    return undefined; // the CPU is compared in npm run bench; Python's wheels have no WebGPU
  }
  const rates = ["8192", "65536"].map((size) => {
    const args = [peer, job.model, job.folder, job.columns.join(","), join(folder, "peer.parquet"), provider, size];
    const { found, said } = command(args, { env, file: [python.interpreter] });
    if (found === undefined) {
      console.error(`    Python: ${lastLines(said)}`);
    }
    return found === undefined ? 0 : found.rows / found.seconds;
  });
  const best = Math.max(...rates);
  return best === 0 ? undefined : best;
}

/** The largest difference from the predictions of an output of the first file; throws if the other has not its ids. */
async function largestDifference(one, other) {
  const [left, right] = [one, other].map((folder) => `read_parquet('${folder}/*.parquet')`);
  const [[missing, apart]] = await ask(
    `SELECT count(*) FILTER (b.id IS NULL), max(abs(a.score - b.score)) FROM ${left} a LEFT JOIN ${right} b USING (id)`,
  );
  if (missing !== 0n) {
    throw new Error(`comparing ${other} with ${one}: ${String(missing)} ids are missing`);
  }
  return apart.toExponential(0);
}

/** Asks DuckDB. Returns rows. */
export async function ask(sql) {
  const database = await DuckDBInstance.create(":memory:");
  const connection = await database.connect();
  try {
    return (await connection.runAndReadAll(sql)).getRows();
  } finally {
    connection.closeSync();
  }
}

/**
 * A batch that the device has no memory for, on purpose.
 * @param {import("./tables.mjs").GpuJob & { batch: number, expected: string }} job
 * @param {Tools} tools
 * @returns {Promise<Rows>}
 */
export async function memoryRows(job, tools) {
  const rows = [];
  for (const provider of gpusOf(tools)) {
    const env = { ...tools.env, XDG_CACHE_HOME: tools.folder }; // where limits of earlier runs are not known
    const options = { provider, env, folder: tools.folder, engine: { batch_size: job.batch }, commitRows: job.batch };
    const ran = await score(job, options);
    const halved = ran.said.split("no memory for a batch of").length - 1;
    const ended = ran.code === 0 ? await rightRows(job, join(tools.folder, "out")) : `exit code ${ran.code}`;
    rows.push([provider, grouped(job.batch), String(halved), grouped(ran.found?.batch_size), ended]);
  }
  return [
    ["provider", "rows asked for", "times halved", "rows in a batch at the end", "rows with the right prediction"],
    ...rows,
  ];
}

async function rightRows({ rows, expected }, folder) {
  const sql = `SELECT count(DISTINCT id) FILTER (y = ${expected}) FROM read_parquet('${folder}/*.parquet')`;
  const [[right]] = await ask(sql);
  if (Number(right) !== rows) {
    fail(`${rows - Number(right)} rows have no prediction, or a wrong one`);
  }
  return `${grouped(Number(right))} of ${grouped(rows)}`;
}

/**
 * One worker, then two at once on the same GPU.
 * @param {import("./tables.mjs").GpuJob} job
 * @param {Tools} tools
 * @returns {Promise<Rows>}
 */
export async function workersRows(job, tools) {
  const rows = [];
  for (const provider of gpusOf(tools)) {
    const options = { provider, env: tools.env, folder: tools.folder, commitRows: Math.ceil(job.rows / 16) };
    const alone = await score(job, options);
    await rm(join(tools.folder, "out"), { recursive: true, force: true }); // the same spec once more
    const ends = await twoWorkers(join(tools.folder, "job.yaml"), tools.env);
    const failed = ends.filter(({ code }) => code !== 0).map(({ code }) => `exit code ${code}`);
    const once = failed.length === 0 ? await idsOnce(join(tools.folder, "out"), job.rows) : failed.join(", ");
    const scored = ends.map(({ found }) => found?.rows_scored ?? 0);
    const rate = (scored[0] + scored[1]) / Math.max(...ends.map(({ found }) => found?.seconds ?? 0));
    const together = failed.length === 0 ? grouped(rate) : "–";
    rows.push([provider, grouped(alone.found?.rows_per_second), together, scored.map(grouped).join(" + "), once]);
  }
  return [["provider", "one worker, rows/s", "two workers, rows/s", "rows of each", "in the output"], ...rows];
}

async function twoWorkers(spec, env) {
  const workers = ["0/2", "1/2"].map(async (worker) => {
    const args = [program, "run", spec, "--json", "--no-progress", "--worker", worker];
    const options = { env: { ...process.env, ...env }, timeout: longestMs };
    try {
      return { code: 0, found: lastJson((await promisify(execFile)(process.execPath, args, options)).stdout) };
    } catch (error) {
      fail(`worker ${worker}: ${lastLines(error.stderr ?? error.message)}`);
      return { code: error.code ?? error.signal, found: undefined };
    }
  });
  return await Promise.all(workers);
}

async function idsOnce(folder, rows) {
  const [[all, ids]] = await ask(`SELECT count(*), count(DISTINCT id) FROM read_parquet('${folder}/*.parquet')`);
  if (Number(all) === rows && ids === all) {
    return "each row once";
  }
  fail(`two workers wrote ${Number(all)} rows with ${Number(ids)} ids`);
  return `${Number(all)} rows, ${Number(ids)} ids`;
}
