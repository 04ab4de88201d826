// What `infer-batch diff` takes for two tables of ROWS rows (default 20 million), as folders of Parquet files and in
// Postgres: `node bench/diff.mjs [ROWS] [folders|postgres]`. It needs 400 bytes of disk for each row.
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { DuckDBInstance } from "@duckdb/node-api";
import { Client } from "pg";
import { findBinaries, startServer } from "../test/support/postgres-server.mjs";

const rows = Number(process.argv[2] ?? 20_000_000);
const only = process.argv[3];
const files = 10;
const moved = 1000;
const program = fileURLToPath(new URL("../bin/infer-batch.js", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "infer-batch-diff-"));
const sides = ["a", "b"];
/** Of B, 1000 keys are others, and each hundredth score. `i` is the row's number. */
const isB = (side) => (side === "b" ? 1 : 0);

/** Where the program keeps what does not fit in memory. */
const spill = join(folder, "spill");

try {
  mkdirSync(spill);
  if (only !== "postgres") {
    await writeFolders();
    await measure("folders", ["diff", join(folder, "b"), "--against", join(folder, "a"), "--key", "id"]);
    sides.forEach((side) => rmSync(join(folder, side), { recursive: true }));
  }
  const found = only === "folders" ? { missing: "as was asked for" } : findBinaries();
  if ("missing" in found) {
    console.log(`without Postgres: ${found.missing}`);
  } else {
    await inPostgres(found.native);
  }
} finally {
  rmSync(folder, { recursive: true });
}

async function writeFolders() {
  const connection = await (await DuckDBInstance.create(":memory:", { threads: "1" })).connect();
  for (const side of sides) {
    mkdirSync(join(folder, side));
    for (let file = 0; file < files; file += 1) {
      const [from, to] = [file, file + 1].map((one) => Math.floor((one * rows) / files) + isB(side) * moved);
      const select = `SELECT (hash(i) >> 1)::BIGINT AS id, (sin(i) + if(i % 100 = 0, ${isB(side)}, 0))::FLOAT AS score,
        'label ' || (i % 7) AS label FROM range(${from}, ${to}) t(i)`;
      await connection.run(`COPY (${select}) TO '${join(folder, side, `part-${file}.parquet`)}' (FORMAT parquet)`);
    }
  }
}

async function inPostgres(native) {
  const server = await startServer(native);
  const client = new Client({ connectionString: server.url("postgres") });
  try {
    await client.connect();
    for (const side of sides) {
      await client.query(`CREATE UNLOGGED TABLE public.${side} AS
        SELECT hashint8extended(i, 0) AS id, (sin(i) + CASE WHEN i % 100 = 0 THEN ${isB(side)} ELSE 0 END)::real AS score,
        'label ' || (i % 7) AS label FROM generate_series(${isB(side) * moved}, ${rows + isB(side) * moved - 1}) AS t (i)`);
    }
    const spec = join(folder, "job.yaml");
    const postgres = { url: server.url("postgres"), table: "public.b" };
    const input = { path: "none/*.parquet" };
    writeFileSync(
      spec,
      JSON.stringify({ version: 1, name: "diff", input, model: { path: "none.onnx" }, output: { postgres } }),
    );
    await measure("Postgres", ["diff", spec, "--table", "public.b", "--against", "public.a", "--key", "id"]);
  } finally {
    await client.end();
    await server.kill("SIGTERM");
  }
}

/** Prints seconds, CPU seconds, and the peaks of memory and of what was spilled, of a command. */
async function measure(name, args) {
  const started = performance.now();
  const env = { ...process.env, TMPDIR: spill };
  const child = spawn(process.execPath, [program, ...args, "--json"], { env, stdio: ["ignore", "pipe", "inherit"] });
  let [json, peakMiB, cpuSeconds, spilledGiB] = ["", 0, 0, 0];
  child.stdout.on("data", (text) => (json += text));
  const timer = setInterval(() => {
    const usage = readUsage(child.pid);
    [peakMiB, cpuSeconds] = [Math.max(peakMiB, usage.peakMiB), Math.max(cpuSeconds, usage.cpuSeconds)];
    spilledGiB = Math.max(spilledGiB, spilledBytes() / 1024 ** 3);
  }, 200);
  const code = await new Promise((done) => child.once("close", done));
  clearInterval(timer);
  if (code !== 0) {
    throw new Error(`${args.join(" ")} ended with ${code}`);
  }
  const { rows_gone: gone, rows_added: added, rows_changed: changed } = JSON.parse(json);
  if (gone !== moved || added !== moved || Math.abs(changed - rows / 100) > moved) {
    throw new Error(`${gone} gone, ${added} added, ${changed} changed`);
  }
  const seconds = (performance.now() - started) / 1000;
  console.log(
    `${name}: ${rows.toLocaleString("en")} rows twice, ${seconds.toFixed(0)} s, ${cpuSeconds.toFixed(0)} s of CPU, ${peakMiB.toFixed(0)} MiB at the peak, ${spilledGiB.toFixed(1)} GiB of temporary files`,
  );
}

function spilledBytes() {
  let bytes = 0;
  for (const name of readdirSync(spill, { recursive: true })) {
    const found = statSync(join(spill, name), { throwIfNoEntry: false });
    bytes += found?.isFile() === true ? found.blocks * 512 : 0;
  }
  return bytes;
}

function readUsage(pid) {
  try {
    // Of a process that has just ended, there is no peak any more.
    const [, peak = "0"] = /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8")) ?? [];
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    const [user, system] = stat
      .slice(stat.lastIndexOf(")") + 2)
      .split(" ")
      .slice(11, 13)
      .map(Number);
    return { peakMiB: Number(peak) / 1024, cpuSeconds: (user + system) / 100 };
  } catch {
    return { peakMiB: 0, cpuSeconds: 0 };
  }
}
