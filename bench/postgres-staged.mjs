// node bench/postgres-staged.mjs [--rows N] [--runs N]: what staging costs in Postgres, by mode. The same rows are written
// straight into a table, and by way of a staging table; both in turn, and the medians count.
import { parseArgs } from "node:util";
import { Client } from "pg";
import { findBinaries, startServer } from "../test/support/postgres-server.mjs";
import { sinkOnly } from "./postgres-sink.mjs";

const { values: options } = parseArgs({
  options: { rows: { type: "string", default: "4000000" }, runs: { type: "string", default: "3" } },
});
const [rows, runs] = [Number(options.rows), Number(options.runs)];
const found = findBinaries();
if (found.native === undefined) {
  throw new Error(found.missing);
}
const server = await startServer(found.native);
const url = server.url("postgres");
const admin = new Client({ connectionString: url });
await admin.connect();

const cases = [
  { what: "append, no index", mode: "append", key: [], index: "" },
  { what: "append, primary key", mode: "append", key: [], index: " PRIMARY KEY" },
  { what: "upsert", mode: "upsert", key: ["id"], index: " PRIMARY KEY" },
];

const median = (numbers) => numbers.toSorted((one, other) => one - other)[Math.floor(numbers.length / 2)];
const mrows = (seconds) => (rows / seconds / 1e6).toFixed(2);

for (const { what, mode, key, index } of cases) {
  const times = { direct: [], spans: [], publish: [] };
  for (let run = 0; run < runs; run += 1) {
    for (const staged of [false, true]) {
      await admin.query(`DROP SCHEMA IF EXISTS bench, infer_batch CASCADE; CREATE SCHEMA bench;
        CREATE TABLE bench.scores (id int8${index}, score real); CHECKPOINT`);
      const { spanSeconds, finishSeconds } = await sinkOnly(url, rows, { mode, key, staged });
      const { rows: counted } = await admin.query("SELECT count(*)::int AS n FROM bench.scores");
      if (counted[0].n !== rows) {
        throw new Error(`${what}: ${counted[0].n} rows`);
      }
      if (staged) {
        times.spans.push(spanSeconds);
        times.publish.push(finishSeconds);
      } else {
        times.direct.push(spanSeconds + finishSeconds);
      }
    }
  }
  const [direct, spans, publish] = [median(times.direct), median(times.spans), median(times.publish)];
  console.log(
    `${what}: direct ${mrows(direct)} Mrows/s; staged: spans ${mrows(spans)}, publishing ${mrows(publish)} Mrows/s, in all ${((spans + publish) / direct).toFixed(2)} times as long`,
  );
}
await admin.end();
await server.stop();
