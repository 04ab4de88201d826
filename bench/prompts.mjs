// npm run bench:prompts [-- --rows N] [--only NAME]: a job with prompts against the mock server of the tests, which has a
// rate limit, and misbehaves in one of the contests. How much of the limit the job uses, and how fast it is without one.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { DuckDBInstance } from "@duckdb/node-api";
import { everyFault } from "../test/support/prompt-server/fates.mjs";
import { program, specOf, startServer, ticketsSql } from "./prompts/world.mjs";

const { values: options } = parseArgs({
  options: { rows: { type: "string", default: "3000" }, only: { type: "string" } },
});
const rows = Number(options.rows);
if (!Number.isSafeInteger(rows) || rows < 1) {
  throw new Error(`reading --rows: ${options.rows} is not a number of rows`);
}

const contests = [
  { name: "requests", what: "6,000 requests a minute", limit: { requestsPerMinute: 6000, burstSeconds: 1 } },
  { name: "tokens", what: "480,000 tokens a minute", limit: { tokensPerMinute: 480_000, burstSeconds: 1 } },
  {
    name: "faults",
    what: "6,000 requests a minute, with every fault",
    limit: { requestsPerMinute: 6000, burstSeconds: 1 },
    faults: { ...everyFault, poison: 0 },
  },
  { name: "unlimited", what: "no limit", limit: undefined },
].filter(({ name }) => options.only === undefined || name === options.only);

const scratch = mkdtempSync(join(tmpdir(), "infer-batch-bench-prompts-"));
process.on("exit", () => rmSync(scratch, { recursive: true, force: true }));
const connection = await (await DuckDBInstance.create()).connect();
const table = join(scratch, "tickets.parquet");
await connection.run(`COPY (${ticketsSql(rows)}) TO '${table}'`);

console.log(`${rows} prompts, 200 ms for an answer\n`);
console.log("| the server's limit | share used | requests a second | 429 | sent | paid twice | seconds |");
console.log("| --- | ---: | ---: | ---: | ---: | ---: | ---: |");
for (const contest of contests) {
  const { books, report } = await run(contest);
  const { requests, tokens } = books.limits;
  const shares = [requests, tokens]
    .filter(({ offered }) => offered !== null)
    .map(({ taken, offered }) => taken / offered);
  const share = shares.length === 0 ? "" : `${(Math.max(...shares) * 100).toFixed(1)}%`;
  console.log(
    `| ${contest.what} | ${share} | ${(books.billed.requests / report.seconds).toFixed(1)} | ${books.statuses[429] ?? 0} | ${books.received} | ${books.billed_again.requests} | ${report.seconds.toFixed(1)} |`,
  );
}

async function run({ name, limit, faults = {} }) {
  const server = await startServer({ latencyMs: 200, limit, faults });
  try {
    const folder = mkdtempSync(join(scratch, `${name}-`));
    const spec = join(folder, "job.yaml");
    writeFileSync(spec, JSON.stringify(specOf({ url: `${server.base}/v1`, table, out: "out" })));
    const { status, stdout, stderr } = await runProgram([program, "run", spec, "--json", "--no-progress"], folder);
    if (status !== 0) {
      throw new Error(`the job ended with ${status}: ${stderr.slice(-2000)}`);
    }
    return { books: JSON.parse(await server.get("books")), report: JSON.parse(stdout) };
  } finally {
    server.stop();
  }
}

function runProgram(args, folder) {
  const child = spawn(process.execPath, args, { env: { ...process.env, XDG_CACHE_HOME: join(folder, "cache") } });
  const said = { stdout: "", stderr: "" };
  child.stdout.on("data", (text) => (said.stdout += text));
  child.stderr.on("data", (text) => (said.stderr += text));
  return new Promise((done) => child.once("close", (status) => done({ status, ...said })));
}
