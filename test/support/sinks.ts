import { join } from "node:path";
import type { Contract } from "#src/models/binding/contract.js";
import { profileRows, profileText } from "#src/checks/profile/profile.js";
import type { ColumnType, NamedColumn, OutputRows, RejectedRow, SpanOutput } from "#src/columns/types.js";
import type { Plan, PlanTarget, RunId, Span } from "#src/run/plan/plan.js";
import { spanAt, spanCount } from "#src/run/plan/spans.js";
import { openDeltaSink } from "#src/targets/delta.js";
import { inFolder } from "#src/targets/parquet/parts.js";
import { openParquetSink } from "#src/targets/parquet/sink.js";
import type { Sink, StoredPlan } from "#src/targets/target.js";
import type { AttemptFacts } from "#src/run/lifecycle/span-record.js";
import { connectionOf } from "#src/targets/postgres/connect.js";
import type { ObjectStore } from "#src/stores/objects/store.js";
import { objectUriText, parseObjectUri } from "#src/job/jobfile/uri.js";
import { openStoreOfObjects } from "#src/stores/objects.js";
import { openSpool } from "#src/base/spool.js";
import { openPostgresSink, type PostgresSink } from "#src/targets/postgres/sink.js";
import type { PostgresOutputSpec } from "#src/job/jobfile/output-spec.js";
import { planOf } from "./plans.js";
import { s3Target, type TargetSetup } from "./s3-target.js";
import { alone, beginRun, type BegunRun } from "./sink-drive.js";
import { retriesFor } from "./retries.js";
import { type DiskTableOptions, openDiskSink, openDiskTable, sinkOptions, testSpool } from "./sink-options.js";

const contract: Contract = {
  inputs: [],
  outputs: [{ kind: "scalar", column: "score", tensor: "score", type: "float32" }],
  passthrough: [{ column: "id", source: { name: "id", path: ["id"], type: "int64" } }],
  fixedBatchRows: null,
  expressions: null,
  cast: "exact",
  missing: "bad_row",
};

export function planFor(target: PlanTarget, { rows = 25, commitRows = 10, runId = "job-000000000000" } = {}): Plan {
  return { ...planOf([rows], commitRows), runId: runId as RunId, contract, target };
}

/** Rows with these ids; the score of each is a function of it. */
export function outputOf(ids: readonly number[], scoreOf: (id: number) => number = (id) => id / 4): OutputRows {
  return {
    rowCount: ids.length,
    columns: [
      named("id", "int64", BigInt64Array.from(ids.map(BigInt))),
      named("score", "float32", Float32Array.from(ids, scoreOf)),
    ],
  };
}

function named(
  name: string,
  type: ColumnType,
  data: BigInt64Array<ArrayBuffer> | Float32Array<ArrayBuffer>,
): NamedColumn {
  return { name, type, column: { kind: "fixed", elementsPerValue: 1, data, valid: undefined } };
}

export const idsOf = ({ rowStart, rowEnd }: Span): number[] =>
  Array.from({ length: rowEnd - rowStart }, (_, index) => rowStart + index);

export const rejectOf = (row: number): RejectedRow => ({
  shard: "s0",
  row,
  columns: { id: String(row) },
  column: "f",
  reason: "null",
  value: null,
});

/** The output of a span whose rows were all scored or rejected. */
export function whole(rows: OutputRows, rejects: readonly RejectedRow[] = []): SpanOutput {
  return {
    rows,
    rejects,
    filtered: 0,
    batchSize: 4096,
    profile: profileText(profileRows(rows, { predicted: [], carried: [], bins: 100 })),
  };
}

/** Commits the spans for which `which` is true. Each row's id is its number in the run. */
export async function commitSpans(
  run: BegunRun,
  { plan }: StoredPlan,
  which: (span: number) => boolean = () => true,
): Promise<void> {
  for (let index = 0; index < spanCount(plan); index += 1) {
    if (which(index) && !run.spans.has(index)) {
      const span = spanAt(plan, index);
      await run.commit(span, whole(outputOf(idsOf(span))));
    }
  }
}

let writers = 0;

export function parquetSink(folder: string): Promise<Sink> {
  writers += 1;
  return Promise.resolve(openDiskSink({ folder: join(folder, "out"), compression: "zstd", writer: `test.${writers}` }));
}

export function deltaSink(table: string, options: Partial<DiskTableOptions> = {}): Sink {
  writers += 1;
  return openDiskTable({ table, writer: `test.${writers}`, ...options });
}

export interface S3SinkOptions {
  readonly port: number;
  /** `s3://bucket/folder` */
  readonly uri: string;
  /** A folder of this machine for the spool. */
  readonly spool: string;
  readonly retrySeconds?: number;
  readonly warn?: (message: string) => void;
  readonly target?: Partial<TargetSetup>;
  /** The store that `uri` is in, at this port. Default: one in S3. */
  readonly objects?: ObjectStore;
  readonly otherRunFolders?: readonly (string | RegExp)[];
  readonly isDead?: (writer: string) => boolean;
  /** A run, where it is a Delta table. */
  readonly runOfTable?: RunId;
}

export function s3Sink(options: S3SinkOptions): Promise<Sink> {
  const { port, uri, spool, retrySeconds = 0, warn = () => undefined, target = {} } = options;
  const { otherRunFolders = [], isDead = () => false, runOfTable } = options;
  writers += 1;
  const writer = `test.${process.pid}.${writers}`;
  const { objects = s3Target({ port, retrySeconds, warn, ...target }) } = options;
  const outgoing = openSpool({ root: spool, writer, use: "out", isDead, maxBytes: 1e9 });
  const files = {
    ...sinkOptions,
    target: uri,
    folder: runOfTable === undefined ? uri : `${uri}/_infer-batch/${runOfTable}`,
    uri,
    storeAt: () => openStoreOfObjects({ objects, spool: outgoing, writer, isDead }),
    failure: "OBJECT_STORE",
    compression: "zstd",
    otherRunFolders: {
      root: objectUriText({ ...parseObjectUri(uri), key: "" }),
      job: otherRunFolders,
      series: otherRunFolders,
    },
    spool: outgoing,
    async close() {
      await outgoing[Symbol.asyncDispose]();
      objects[Symbol.dispose]();
    },
    writer,
    warn,
  } as const;
  const table = { table: uri, mode: "append", create: true, partition: {}, allowDuplicates: false } as const;
  return Promise.resolve(
    runOfTable === undefined ? openParquetSink({ ...files, ...inFolder }) : openDeltaSink({ ...files, ...table }),
  );
}

export interface PgSinkOptions {
  readonly url: string;
  readonly postgres?: Partial<PostgresOutputSpec>;
  readonly retrySeconds?: number;
  readonly warn?: (message: string) => void;
  readonly allowOlder?: boolean;
  readonly allowDuplicates?: boolean;
}

export function pgSink({
  url,
  postgres,
  retrySeconds = 0,
  warn = () => undefined,
  allowOlder = false,
  allowDuplicates = true,
}: PgSinkOptions): PostgresSink {
  const spec: PostgresOutputSpec = {
    url,
    table: "scores.predictions",
    mode: "append",
    key: [],
    create: true,
    control_schema: "infer_batch",
    keep_previous: 1,
    on_duplicate: "fail",
    swap: "rename",
    timeouts: { connect: 60, statement: 60, lock: 60 }, // long enough that a session which others wait for is not ended as dead
    ...postgres,
  };
  writers += 1;
  return openPostgresSink({
    spec,
    settings: connectionOf(spec, {}),
    retry: retriesFor(retrySeconds, warn),
    writer: `test.${writers}`,
    allowOlder,
    allowDuplicates,
    program: "test",
    spool: testSpool(`test.${writers}`),
  });
}

export async function begun(
  sink: Sink,
  plan: Plan,
  attempt: AttemptFacts = alone,
): Promise<{ stored: StoredPlan; run: BegunRun }> {
  const stored = await sink.create(plan);
  return { stored, run: await beginRun(sink, stored, attempt) };
}

export async function carryOut(sink: Sink, plan: Plan): Promise<void> {
  const { stored, run } = await begun(sink, plan);
  await commitSpans(run, stored);
  await run.finish();
}

export async function collect<T>(all: AsyncIterable<T>): Promise<T[]> {
  const collected: T[] = [];
  for await (const one of all) {
    collected.push(one);
  }
  return collected;
}
