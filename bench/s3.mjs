// npm run bench:s3 [-- --runs N] [--small]: times the reading of shards in S3. A store is started here, on the cores that
// the contenders have: its CPU time is reported next to theirs.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { rm, stat, writeFile } from "node:fs/promises";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { DuckDBInstance } from "@duckdb/node-api";
import { credentials, s3Env } from "../test/support/s3-server.mjs";
import { dataFolder, prepareData, quote, tables } from "./data.mjs";
import { measureTogether } from "./measure.mjs";
import { machine } from "./report.mjs";
import { atExit, bucket, startProxy, startStore } from "./s3-store.mjs";

const path = (relative) => fileURLToPath(new URL(relative, import.meta.url));
const { values: options } = parseArgs({
  options: { runs: { type: "string", default: "5" }, small: { type: "boolean", default: false } },
});
const runs = Number(options.runs);
if (!Number.isSafeInteger(runs) || runs < 1) {
  throw new Error(`reading --runs: ${options.runs} is not a number of runs`);
}
const latencyMs = 50;
const { id: tableId, rows: rowCount, shards } = options.small ? tables.mlpSmall : tables.mlp;

await prepareData(new Set(["mlp"]));
const sizes = await Promise.all(shards.map(async (shard) => (await stat(shard)).size));
const bytes = sizes.reduce((sum, size) => sum + size, 0);
const scratch = mkdtempSync(join(tmpdir(), "infer-batch-bench-s3-"));
const outputs = join(dataFolder, "out");
atExit(() => {
  rmSync(scratch, { recursive: true, force: true });
});
const store = await startStore(tableId, shards);
const proxy = await startProxy(store.port, 0);
const latency = await startProxy(store.port, latencyMs);

const program = [process.execPath, path("../bin/infer-batch.js"), "run"];
const uris = store.keys.map((key) => `s3://${bucket}/${key}`);
const s3Job = (out) => [...program, path("jobs/mlp-s3.yaml"), "--param", `table=${tableId}`, "--param", `out=${out}`];
const read = (way) => [process.execPath, path("s3-read.mjs"), way, ...uris];
const names = {
  disk: "job, local disk",
  s3: "job, S3",
  workers: "job, S3, 2 processes",
  proxy: "job, S3, through a proxy",
  latency: `job, S3, through a proxy, ${latencyMs} ms more for each request`,
  own: "reading everything, as a job does",
  sdk: "plain parallel ranged download, AWS SDK for JavaScript",
  curl: "plain parallel ranged download, curl",
};
const diskOut = join(outputs, "mlp/bench-s3");
const diskParams = ["--param", `table=${tableId}`, "--param", "out=bench-s3"];
const s3Out = (out) => join(outputs, "mlp-s3", out);
const contenders = [
  { id: "disk", command: [...program, path("jobs/mlp.yaml"), ...diskParams], out: diskOut },
  { id: "s3", command: s3Job("s3"), out: s3Out("s3"), port: store.port },
  {
    id: "workers",
    commands: [s3Job("workers").concat("--worker", "0/2"), s3Job("workers").concat("--worker", "1/2")],
    out: s3Out("workers"),
    port: store.port,
  },
  { id: "proxy", command: s3Job("proxy"), out: s3Out("proxy"), port: proxy.port },
  { id: "latency", command: s3Job("latency"), out: s3Out("latency"), port: latency.port },
  { id: "own", command: read("own"), port: store.port },
  { id: "sdk", command: read("sdk"), port: store.port },
  ...(hasCurl() ? [{ id: "curl", command: curlCommand(), port: store.port }] : []),
];

function hasCurl() {
  try {
    return execFileSync("curl", ["--help", "all"], { encoding: "utf8" }).includes("--aws-sigv4");
  } catch {
    return false;
  }
}

/** Each range into a file of its own. */
function curlCommand() {
  const step = 8 * 1024 * 1024;
  const config = store.keys.flatMap((key, index) =>
    Array.from({ length: Math.ceil(sizes[index] / step) }, (_, piece) =>
      [
        `url = "http://127.0.0.1:${store.port}/${bucket}/${key}"`,
        `range = "${piece * step}-${Math.min((piece + 1) * step, sizes[index]) - 1}"`,
        `output = "${join(scratch, `${index}-${piece}`)}"`,
      ].join("\n"),
    ),
  );
  const file = join(scratch, "curl.cfg");
  writeFileSync(file, config.join("\n"));
  const user = `${credentials.accessKeyId}:${credentials.secretAccessKey}`;
  const empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
  const signed = ["--aws-sigv4", "aws:amz:us-east-1:s3", "--user", user, "-H", `x-amz-content-sha256: ${empty}`];
  return ["curl", "-sS", "--fail", ...signed, "--parallel", "--parallel-max", "24", "--no-progress-meter", "-K", file];
}

/** User and system time of the store so far. */
function storeSeconds() {
  const text = readFileSync(`/proc/${store.pid}/stat`, "utf8");
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[11]) + Number(fields[12])) / 100;
}

/** Every id once, and scores that sum up to what they do on the disk. */
async function check(connection, out, id) {
  const files = quote(join(out, "part-*.parquet"));
  const sql = `SELECT count(*)::INT, count(DISTINCT id)::INT, min(id)::INT, max(id)::INT, sum(score) FROM ${files}`;
  const [[count, ids, low, high, sum]] = (await connection.runAndReadAll(sql)).getRows();
  if (count !== rowCount || ids !== rowCount || low !== 0 || high !== rowCount - 1) {
    throw new Error(
      `checking ${id}: ${count} rows with ${ids} ids from ${low} to ${high}, wanted ${rowCount} from 0 on`,
    );
  }
  return sum;
}

async function runOnce({ id, command, commands = [command], out, port }, connection) {
  if (out !== undefined) {
    await rm(out, { recursive: true, force: true });
  }
  Object.assign(process.env, s3Env(port ?? store.port)); // of the contender
  const before = storeSeconds();
  const taken = await measureTogether(commands);
  const seconds = id === "own" || id === "sdk" ? JSON.parse(taken.said).seconds : taken.seconds;
  const sum = out === undefined ? undefined : await check(connection, out, id);
  return { ...taken, seconds, storeSeconds: storeSeconds() - before, sum };
}

const taken = new Map(contenders.map(({ id }) => [id, []]));
const instance = await DuckDBInstance.create(":memory:");
const connection = await instance.connect();
try {
  let wanted;
  for (let round = 0; round <= runs; round += 1) {
    for (const contender of contenders) {
      const { id } = contender;
      const one = await runOnce(contender, connection);
      wanted ??= one.sum;
      if (one.sum !== undefined && Math.abs(one.sum - wanted) > 1e-6 * Math.abs(wanted)) {
        throw new Error(`checking ${id}: the scores sum up to ${one.sum}, on the disk to ${wanted}`);
      }
      console.error(`${round === 0 ? "warm-up" : `run ${round}`}  ${names[id]}: ${one.seconds.toFixed(2)} s`);
      if (round > 0) {
        taken.get(id).push(one);
      }
    }
  }
} finally {
  connection.closeSync();
  instance.closeSync();
  proxy.stop();
  latency.stop();
  await store.stop();
  rmSync(scratch, { recursive: true, force: true });
  await rm(outputs, { recursive: true, force: true });
}

const median = (values) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)];
const medians = new Map(
  [...taken].map(([id, all]) => {
    const of = (key) => median(all.map((one) => one[key] ?? Number.NaN));
    return [id, { seconds: of("seconds"), cpu: of("cpuSeconds"), store: of("storeSeconds"), peak: of("peakMiB") }];
  }),
);
const lines = contenders.map(({ id }) => {
  const { seconds, cpu, store: server, peak } = medians.get(id);
  const columns = [seconds.toFixed(2), Math.round(bytes / seconds / 1e6), cpu.toFixed(2), server.toFixed(2)];
  return `| ${names[id]} | ${columns.join(" | ")} | ${Math.round(peak)} |`;
});
/** How the rate of one is to that of another, and what it should be. */
const ratios = [
  ["own", "sdk", "0.7 or more"],
  ["own", "curl"], // which runs no JavaScript
  ["s3", "disk", "0.8 or more"],
  ["latency", "proxy", "0.8 or more"],
  ["workers", "s3"],
]
  .filter(([, to]) => medians.has(to))
  .map(([of, to, wanted]) => {
    const ratio = medians.get(to).seconds / medians.get(of).seconds;
    return `- ${names[of]} : ${names[to]}: ${ratio.toFixed(2)}, ${wanted === undefined ? "for information" : `wanted ${wanted}`}`;
  });
const [disk, s3] = [medians.get("disk"), medians.get("s3")];
const whole = s3.cpu + s3.store;
const report = [
  "# From S3",
  "",
  `- Written by: \`npm run bench:s3\`, ${new Date().toISOString().slice(0, 10)}`,
  `- Machine: ${machine()}`,
  `- versitygw on the same cores, over loopback, Node ${process.versions.node}`,
  `- ${rowCount.toLocaleString("en-US")} rows of 32 FLOAT columns, ${Math.round(bytes / 1e6)} MB, MLP 32-128-64-1; medians of ${runs} runs after one to warm up`,
  "- Jobs: whole processes. Downloads: from the first request to the last byte in a file; curl: the whole process",
  "",
  "| what | seconds | MB/s | CPU s | CPU s of the store | peak MiB |",
  "| --- | ---: | ---: | ---: | ---: | ---: |",
  ...lines,
  "",
  "Ratios of rates:",
  "",
  ...ratios,
  "",
  `The job takes ${disk.cpu.toFixed(2)} s of CPU from disk and, with the store, ${whole.toFixed(2)} s from S3. If both kept all`,
  `${availableParallelism()} cores busy, their rates would be as ${(disk.cpu / whole).toFixed(2)} to 1.`,
  "",
].join("\n");
console.log(report);
if (!options.small) {
  await writeFile(path("results-s3.md"), report);
}
