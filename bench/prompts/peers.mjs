// npm run bench:prompts-peers [-- --rows N] [--only ID] [--contest NAME] [--install] [--write]: the same prompts by infer-batch,
// Daft, Ray Data and a loop around the openai client, against the mock server of the tests. --write replaces the tables in bench/results-prompts.md.
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { DuckDBInstance } from "@duckdb/node-api";
import { everyFault } from "../../test/support/prompt-server/fates.mjs";
import { descendants, measure } from "../measure.mjs";
import { installFrameworks } from "../python.mjs";
import { auditBooks, auditOutput } from "./audit.mjs";
import { findPeers } from "./contenders.mjs";
import { tablesOf, writeTables } from "./tables.mjs";
import { startServer, ticketsSql } from "./world.mjs";

const { values: options } = parseArgs({
  options: {
    rows: { type: "string", default: "2000" },
    only: { type: "string" },
    contest: { type: "string" },
    install: { type: "boolean", default: false },
    write: { type: "boolean", default: false },
  },
});
const rows = Number(options.rows);
const shardCount = 16;
if (!Number.isSafeInteger(rows) || rows < shardCount) {
  throw new Error(`reading --rows: ${options.rows} is not a number of rows from ${shardCount} on`);
}
if (options.write && (options.only ?? options.contest) !== undefined) {
  throw new Error("reading --write: the documentation has all contenders and contests; leave out --only and --contest");
}
if (options.install) {
  installFrameworks();
}

const limit = { requestsPerMinute: 6000, burstSeconds: 1 };
const seed = 7;
const contests = [
  { id: "limit", what: "No faults", server: { limit } },
  {
    id: "faults",
    what: "Every fault",
    server: { limit, faults: everyFault, changes: [{ after: Math.floor(rows / 2), restartMs: 300 }] },
  },
  { id: "kill", what: "Killed half-way and started again, no other faults", server: { limit }, isKilled: true },
].filter(({ id }) => options.contest === undefined || id === options.contest);

/** Five times what the limit allows, and two minutes: an attempt that takes longer is ended. */
const limitSeconds = 120 + (5 * rows * 60) / limit.requestsPerMinute;

const scratch = mkdtempSync(join(tmpdir(), "infer-batch-bench-peers-"));
process.on("exit", () => rmSync(scratch, { recursive: true, force: true }));
const table = join(scratch, "tickets");
await writeTickets(table);

const [load] = loadavg();
const { contenders, versions } = findPeers();
const absent = contenders.filter((one) => one.absent !== undefined);
for (const { id, absent: why } of absent) {
  console.error(`${id} is absent: ${why}`);
}
if (options.write && absent.length > 0) {
  throw new Error("writing the documentation: contenders are absent; --install installs them");
}
const results = [];
for (const contest of contests) {
  const wanted = contenders.filter(
    ({ id, contests: own, absent: why }) =>
      own.includes(contest.id) && (options.only ?? id) === id && why === undefined,
  );
  for (const contender of wanted) {
    console.error(`${contest.id}: ${contender.id}`);
    results.push({ contest: contest.id, name: contender.name, ...(await compete(contender, contest)) });
  }
}
const text = tablesOf({ contests, results, rows, versions, load });
console.log(text);
if (options.write) {
  writeTables(text);
}

async function writeTickets(folder) {
  mkdirSync(folder);
  const connection = await (await DuckDBInstance.create()).connect();
  const size = Math.ceil(rows / shardCount);
  for (let shard = 0; shard < shardCount; shard += 1) {
    const file = join(folder, `part-${String(shard).padStart(2, "0")}.parquet`);
    await connection.run(`COPY (${ticketsSql(rows)} WHERE i // ${size} = ${shard}) TO '${file}'`);
  }
  connection.closeSync();
}

/** One run of a contender, in two attempts where it is killed. */
async function compete(contender, { id, server: given, isKilled = false }) {
  const server = await startServer({ latencyMs: 200, seed, ...given });
  try {
    const folder = mkdtempSync(join(scratch, `${id}-${contender.id}-`));
    const command = contender.command({ url: `${server.base}/v1`, table, folder });
    // In the middle of a file: at the end of one, checkpoints of whole files would be lucky.
    const halfOfThem = ((shardCount + 1) / 2 / shardCount) * rows;
    const isHalfPaid = async () => JSON.parse(await server.get("books")).billed.requests >= halfOfThem;
    const attempts = isKilled ? [await attempt(command, isHalfPaid), await attempt(command)] : [await attempt(command)];
    return {
      attempts,
      output: await auditOutput(join(folder, "out"), rows, { seed, faults: given.faults ?? {} }),
      books: await auditBooks(server),
    };
  } finally {
    server.stop();
  }
}

/** Runs the command until it ends, or until `isDue`: then all of its processes are killed. */
async function attempt(command, isDue = async () => false) {
  const start = performance.now();
  let ending;
  const watch = async (pid) => {
    while (ending === undefined) {
      const isLate = performance.now() - start > limitSeconds * 1000;
      if (isLate || (await isDue())) {
        ending ??= isLate ? "late" : "killed";
        descendants(pid).forEach(kill);
      }
      await new Promise((done) => setTimeout(done, 50));
    }
  };
  let watching = Promise.resolve();
  const measured = await measure(command, { tree: true, mayFail: true, onStart: (pid) => (watching = watch(pid)) });
  ending ??= "ended";
  await watching;
  return { ...measured, ending };
}

function kill(pid) {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // It has ended.
  }
}
