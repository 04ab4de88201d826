import { createHash } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { noRows, profileText } from "#src/checks/profile/profile.js";
import type { OutputRows, SpanOutput } from "#src/columns/types.js";
import type { Plan } from "#src/run/plan/plan.js";
import { spanAt, spanCount } from "#src/run/plan/spans.js";
import { type FileSystem, nodeFileSystem, openDiskStore } from "#src/stores/disk.js";
import { layoutOf } from "#src/targets/parquet/layout.js";
import { textOfRejects } from "#src/targets/parquet/parts.js";
import type { RunSink, RunWriter, Sink, StoredPlan } from "#src/targets/target.js";
import type { Decision, RunVerdict } from "#src/run/lifecycle/lifecycle.js";
import type { RunComparison } from "#src/run/lifecycle/erasure.js";
import type { DocumentKind } from "#src/stores/ledger.js";
import type { AttemptFacts } from "#src/run/lifecycle/span-record.js";
import { readPlan } from "#src/targets/parquet/plan-file.js";
import { ref } from "./batches.js";
import { faultsOfFinished, partNames, spanOfName } from "./output.js";
import { readFiles } from "./parquet.js";
import { planOf } from "./plans.js";
import { openDiskSink, sinkOptions } from "./sink-options.js";

/** 11 rows in 3 spans. Row 5 is rejected. */
const rowCount = 11;
const rejectedRow = 5;

export const drivePlan: Plan = {
  ...planOf([7, 4], 4),
  contract: {
    inputs: [],
    outputs: [{ kind: "scalar", column: "score", tensor: "score", type: "float32" }],
    passthrough: [{ column: "id", source: ref("id", "int64") }],
    fixedBatchRows: null,
    expressions: null,
    cast: "exact",
    missing: "bad_row",
  },
};
export const alone: AttemptFacts = {
  worker: 0,
  workers: 1,
  program: "infer-batch 0.0.0",
  provider: "cpu",
  onBadRow: "reject",
};

/** A run that has begun: what is known of it, what writes to it, and what creates its documents, in one object. */
export interface BegunRun extends RunSink, RunWriter {
  create<T extends RunVerdict | RunComparison | Decision>(kind: DocumentKind<T>, value: T): Promise<T>;
}

export async function beginRun(sink: Sink, stored: StoredPlan, attempt: AttemptFacts = alone): Promise<BegunRun> {
  return await beginIf(sink, stored, attempt, () => true);
}

/** Begins a run unless it is finished. What writes to a finished one must not be called. */
export async function beginUnlessFinished(sink: Sink, stored: StoredPlan): Promise<BegunRun> {
  return await beginIf(sink, stored, alone, ({ state }) => state.kind !== "published");
}

async function beginIf(
  sink: Sink,
  stored: StoredPlan,
  attempt: AttemptFacts,
  isDue: (run: RunSink) => boolean,
): Promise<BegunRun> {
  const run = await sink.open(stored);
  const writer = isDue(run) ? await run.begin(attempt) : ({} as RunWriter);
  return { ...run, ...writer, create: (kind, value) => sink.ledger.create(stored, kind, value) };
}

export const driveSpans = spanCount(drivePlan);

/** The output folder of a drive. The run makes the folder above it, too. */
export const driveFolder = (root: string): string => join(root, "lake/out");

/** A span's rows as a run hands them to its sink. `rejected`: the rows that this attempt rejects. */
export function driveRows(span: number, rejected: readonly number[] = [rejectedRow]): SpanOutput {
  const { rowStart, rowEnd } = spanAt(drivePlan, span);
  const all = Array.from({ length: rowEnd - rowStart }, (_, index) => rowStart + index);
  const kept = all.filter((row) => !rejected.includes(row));
  const fixed = { kind: "fixed", elementsPerValue: 1, valid: undefined } as const;
  return {
    rows: {
      rowCount: kept.length,
      columns: [
        { name: "id", type: "int64", column: { ...fixed, data: BigInt64Array.from(kept, BigInt) } },
        { name: "score", type: "float32", column: { ...fixed, data: Float32Array.from(kept, (row) => row / 2) } },
      ],
    },
    rejects: all
      .filter((row) => rejected.includes(row))
      .map((row) => ({ shard: "s0", row, columns: { id: String(row) }, column: "x", reason: "null", value: null })),
    filtered: 0,
    batchSize: 4096,
    profile: profileText(noRows),
  };
}

/** What a run has reported. It must hold from then on. */
export interface Told {
  readonly committed: Set<number>;
  finished: boolean;
  attempts: number;
}

export const nothingTold = (): Told => ({ committed: new Set(), finished: false, attempts: 0 });

let writers = 0;

/** Opens the sink of a new attempt. Earlier attempts count as dead, unless `isDead` says otherwise. */
export function openDriveSink(
  root: string,
  fs: FileSystem,
  { warn = sinkOptions.warn, isDead, duckdb = sinkOptions.duckdb }: Pick<Attempt, "warn" | "isDead" | "duckdb"> = {},
): Promise<Sink> {
  writers += 1;
  const writer = `host.${writers}.w${writers}`;
  return Promise.resolve(
    openDiskSink({
      duckdb,
      folder: driveFolder(root),
      fs,
      writer,
      isDead: isDead ?? ((other) => other !== writer),
      warn,
    }),
  );
}

/** Finds or plans the run, and begins it. `planner`: different ones make different plans. */
export async function beginDrive(sink: Sink, planner = 0): Promise<BegunRun> {
  const plan = { ...drivePlan, createdBy: `planner ${planner}` };
  const stored = (await sink.find(plan.runId)) ?? (await sink.create(plan));
  return await beginUnlessFinished(sink, stored);
}

export interface Attempt {
  readonly root: string;
  readonly fs: FileSystem;
  readonly told: Told;
  /** Spans to commit at most; with all of them, the run is finished. */
  readonly spans?: number;
  readonly rejected?: readonly number[];
  readonly warn?: ((message: string) => void) | undefined;
  readonly isDead?: ((writer: string) => boolean) | undefined;
  readonly duckdb?: typeof sinkOptions.duckdb;
}

/** One process from start to end, with the calls that `run` makes to its sink. */
export async function drive(attempt: Attempt): Promise<void> {
  const { root, fs, told, spans = Number.POSITIVE_INFINITY, rejected } = attempt;
  await using sink = await openDriveSink(root, fs, attempt);
  // Plans of different attempts differ, as they do in the world: a lost plan is not made again as it was.
  told.attempts += 1;
  const run = await beginDrive(sink, told.attempts);
  const pending = Array.from({ length: driveSpans }, (_, span) => span).filter((span) => !run.spans.has(span));
  for (const span of run.state.kind === "published" ? [] : pending.slice(0, spans)) {
    await run.commit(spanAt(drivePlan, span), driveRows(span, rejected));
    told.committed.add(span);
  }
  if (run.state.kind !== "published" && pending.length <= spans) {
    await run.finish();
  }
  told.finished = told.finished || pending.length <= spans;
}

const sound = new Map<string, readonly string[]>();

export async function faultsOf(root: string, told: Told): Promise<string[]> {
  const folder = driveFolder(root);
  const parts = await partNames(folder);
  const spans = new Set(parts.map(spanOfName));
  const names: string[] = await readdir(folder).catch(() => []);
  const faults = names
    .filter((name) => !name.startsWith("_") && !parts.includes(name))
    .map((name) => `a reader sees ${name}`);
  faults.push(
    ...[...told.committed].filter((span) => !spans.has(span)).map((span) => `span ${span} was told and is gone`),
  );
  for (const name of parts) {
    faults.push(...(await faultsOfPart(join(folder, name), spanOfName(name))));
  }
  faults.push(...(await faultsOfControl(folder)));
  if (told.finished && !names.includes("_SUCCESS")) {
    faults.push("the run was told finished and has no _SUCCESS");
  }
  if (names.includes("_SUCCESS")) {
    faults.push(...(spans.size === driveSpans ? [] : [`_SUCCESS is there with ${spans.size} parts`]));
    faults.push(...(await faultsOfFinished(folder, rowCount - 1).catch((error: unknown) => [String(error)])));
    faults.push(...(await strayRejects(folder)));
  }
  return faults;
}

async function faultsOfPart(path: string, span: number): Promise<string[]> {
  const { rows, rejects } = driveRows(span);
  const key = `${span} ${createHash("sha256")
    .update(await readFile(path))
    .digest("hex")}`;
  let faults = sound.get(key);
  if (faults === undefined) {
    faults = await differencesOf(path, rows);
    sound.set(key, faults);
  }
  if (rejects.length === 0) {
    return [...faults];
  }
  const lines = rejects.map((reject) => `${JSON.stringify(reject)}\n`).join("");
  const found = await readFile(join(dirname(path), "_rejects", rejectsName(span)), "utf8").catch(() => undefined);
  return [...faults, ...(found === lines ? [] : [`${path} is there, its rejects are ${found ?? "gone"}`])];
}

async function differencesOf(path: string, rows: OutputRows): Promise<string[]> {
  const [ids] = rows.columns;
  const data = ids?.column.kind === "fixed" ? Array.from(ids.column.data, Number) : [];
  const expected = data.map((id) => `${id} ${id / 2}`).join();
  const found = await readFiles([path]).catch((error: unknown) => String(error));
  const text =
    typeof found === "string" ? found : found.map(({ id, score }) => `${String(id)} ${String(score)}`).join();
  return text === expected ? [] : [`${path} holds ${text}, expected ${expected}`];
}

const rejectsName = (span: number): string =>
  layoutOf("", drivePlan.runId).rejectsOf(span, textOfRejects(driveRows(span).rejects).sha256 ?? "");

/** Files of rejects in a finished run that no part names. */
async function strayRejects(folder: string): Promise<string[]> {
  const names = await readdir(join(folder, "_rejects")).catch(() => []);
  return names
    .filter((name) => driveRows(spanOfName(name)).rejects.length === 0 || name !== rejectsName(spanOfName(name)))
    .map((name) => `_rejects/${name} is there, which no part names`);
}

function drivenStore(root: string): ReturnType<typeof openDiskStore> {
  return openDiskStore({ root, fs: nodeFileSystem, writer: "reader", isDead: () => false });
}

/** Faults of small files under a final name, which must be whole. */
async function faultsOfControl(folder: string): Promise<string[]> {
  const faults: string[] = [];
  const control = join(folder, "_infer-batch");
  const whole = async (path: string, isWhole: (text: string) => boolean): Promise<void> => {
    const text = await readFile(path, "utf8").catch(() => undefined);
    if (text !== undefined && !isWhole(text)) {
      faults.push(`${path} is half written: ${JSON.stringify(text.slice(0, 40))}`);
    }
  };
  faults.push(
    ...(await readPlan(drivenStore(folder), layoutOf(folder, drivePlan.runId)).then(
      () => [],
      (error: unknown) => [String(error)],
    )),
  );
  await whole(join(control, "run.json"), isJson);
  await whole(join(folder, "_manifest.json"), isJson);
  await whole(join(folder, "_SUCCESS"), isJson);
  return faults;
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
