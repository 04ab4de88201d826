// The sink without source and model: rows that lie ready in memory, span by span, through the same code as a run's.
import { createWriteStream } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { finished } from "node:stream/promises";
import { connectionOf } from "../dist/targets/postgres/connect.js";
import { openPostgresSink } from "../dist/targets/postgres/sink.js";
import { noRows, profileText } from "../dist/checks/profile/profile.js";
import { spanAt, spanCount } from "../dist/run/plan/spans.js";
import { commitConcurrency } from "../dist/targets/target.js";
import { copyStream, encodeRows } from "../dist/targets/postgres/copy-binary.js";
import { pgTypeOf } from "../dist/targets/postgres/table.js";

const commitRows = 262_144;

const fixed = (data) => ({ kind: "fixed", elementsPerValue: 1, data, valid: undefined });
const carried = (name, type) => ({ column: name, source: { name, path: [name], type } });

function rowsOf({ rowStart, rowEnd }) {
  const rowCount = rowEnd - rowStart;
  const ids = new BigInt64Array(rowCount);
  const scores = new Float32Array(rowCount);
  for (let row = 0; row < rowCount; row += 1) {
    ids[row] = BigInt(rowStart + row);
    scores[row] = (rowStart + row) / 7;
  }
  return {
    rowCount,
    columns: [
      { name: "id", type: "int64", column: fixed(ids) },
      { name: "score", type: "float32", column: fixed(scores) },
    ],
  };
}

/** A file that the server can COPY FROM. */
export async function writeCopyFile(path, rowCount) {
  const { columns } = rowsOf({ rowStart: 0, rowEnd: rowCount });
  const file = createWriteStream(path, { mode: 0o644 });
  const types = columns.map(({ type }) => pgTypeOf(type));
  for (const chunk of copyStream(encodeRows(columns, types, rowCount))) {
    file.write(chunk);
  }
  file.end();
  await finished(file);
}

/** Writes so many rows. Returns the seconds until all spans are committed, and those of the end of the run. */
export async function sinkOnly(url, rows, { mode = "append", key = [], staged = false } = {}) {
  const spec = {
    url,
    table: "bench.scores",
    mode,
    key,
    create: false,
    control_schema: "infer_batch",
    keep_previous: 1,
    on_duplicate: "fail",
    swap: "rename",
    timeouts: { connect: 10, statement: 120, lock: 10 },
  };
  const retry = {
    maxSeconds: 0,
    nowMs: () => performance.now(),
    random: Math.random,
    sleep: () => Promise.resolve(),
    warn: console.error,
    warnedMs: new Map(),
  };
  const settings = connectionOf(spec, {});
  const spool = {
    ready: () => Promise.resolve(),
    newPath: () => join(tmpdir(), "infer-batch-bench-rows"),
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
  const sink = openPostgresSink({ spec, settings, retry, spool, writer: "bench", program: "bench" });
  const stored = await sink.create({
    format: "infer-batch-plan",
    version: 1,
    runId: "bench-000000000000",
    job: "bench",
    params: {},
    dateParam: null,
    timezone: "UTC",
    input: { format: "parquet", shards: [{ uri: "s", sizeBytes: 0, fingerprint: "", rows }], rows },
    model: { uri: "m", sha256: "0".repeat(64) },
    request: {
      inputs: null,
      outputs: null,
      passthrough: [],
      partitions: {},
      columns: {},
      where: null,
      cast: "exact",
      missing: "bad_row",
    },
    contract: {
      inputs: [],
      outputs: [{ kind: "scalar", column: "score", tensor: "score", type: "float32" }],
      passthrough: [carried("id", "int64")],
      fixedBatchRows: null,
      expressions: null,
      cast: "exact",
      missing: "bad_row",
    },
    target: sink.planTarget,
    staged,
    checks: null,
    commitRows,
    createdBy: "bench",
  });
  const run = await sink.open(stored);
  const start = performance.now();
  const writer = await run.begin({
    worker: 0,
    workers: 1,
    program: "bench",
    provider: "none",
    onBadRow: "fail",
  });
  const spans = Array.from({ length: spanCount(stored.plan) }, (_, index) => spanAt(stored.plan, index)).values();
  const worker = async () => {
    for (const span of spans) {
      const about = { rejects: [], filtered: 0, batchSize: commitRows, profile: profileText(noRows) };
      await writer.commit(span, { rows: rowsOf(span), ...about });
    }
  };
  await Promise.all(Array.from({ length: commitConcurrency }, worker));
  const committed = performance.now();
  if (staged) {
    await run.decide({ kind: "approved", by: "bench", at: new Date().toISOString(), reason: null });
  }
  await writer.finish();
  const ended = performance.now();
  await sink[Symbol.asyncDispose]();
  return { spanSeconds: (committed - start) / 1000, finishSeconds: (ended - committed) / 1000 };
}
