import { z } from "../../base/zod.js";
import { outputColumns } from "../../models/binding/contract.js";
import { type NamedColumn, showType } from "../../columns/types.js";
import { JobError } from "../../base/errors.js";
import { parseJson } from "../../run/plan/parse-plan.js";
import type { Plan, RunId, Span } from "../../run/plan/plan.js";
import { type DamagedFile, damagedOutput, refuseDamaged, repairOfParts, runIdIn, superseded } from "./plan-file.js";
import type { Digest, ReadableStore } from "../../stores/store.js";
import { isEarlier, isLater, isSameJob, type Layout } from "./layout.js";
import type { AttemptJson, StoredPlan } from "../target.js";
import type { CommittedBy, SpanRecord } from "../../run/lifecycle/span-record.js";
import { sqlTypeOf } from "../../duckdb/sql.js";

/** The label of a part, in Parquet's key-value metadata. */
export interface PartLabel {
  readonly runId: string;
  readonly planId: string;
  readonly span: number;
  readonly rowStart: number;
  readonly rowEnd: number;
  /** Rows of the span that are not in the part but in its file under `_rejects/`. */
  readonly rejected: number;
  /** Hex sha256 of that file's text, by which the file is found; null without rejects. */
  readonly rejectsSha256: string | null;
  /** Rows of the span that `input.where` left out. */
  readonly filtered: number;
  /** Rows of the span, predicted or rejected, that `erase` has removed; absent: none. */
  readonly erased?: number | undefined;
  readonly maker: CommittedBy;
}

export interface PartFacts {
  readonly path: string;
  /** undefined: the file has no label of a part. */
  readonly label: PartLabel | undefined;
  readonly rows: number;
  /** `name TYPE, …` */
  readonly schema: string;
}

/** The schema of a part, as `describeParts` reads it back. */
export function partSchema(columns: readonly Pick<NamedColumn, "name" | "type">[]): string {
  return columns.map(({ name, type }) => `${name} ${sqlTypeOf(type)}`).join(", ");
}

const committedBySchema = z.object({
  writer: z.string(),
  worker: z.int(),
  workers: z.int(),
  program: z.string(),
  provider: z.string(),
  batchSize: z.int(),
  onBadRow: z.enum(["fail", "reject"]),
}) satisfies z.ZodType<CommittedBy>;

const labelSchema = z.object({
  runId: z.string(),
  planId: z.string(),
  span: z.int(),
  rowStart: z.int(),
  rowEnd: z.int(),
  rejected: z.int().min(0),
  rejectsSha256: z.string().nullable(),
  filtered: z.int().min(0),
  erased: z.int().min(1).optional(),
  maker: committedBySchema,
}) satisfies z.ZodType<PartLabel>;

export function parseLabel(text: string): PartLabel | undefined {
  return labelSchema.safeParse(parseJson(text)).data;
}

/** What is kept of a part's label. */
export type CommittedPart = SpanRecord & Pick<PartLabel, "rejectsSha256" | "erased">;

/** Leaves out the other fields: of large runs, many labels are in memory. */
export function keptOf({ rows, rejected, rejectsSha256, filtered, erased, maker }: CommittedPart): CommittedPart {
  return { rows, rejected, rejectsSha256, filtered, erased, maker };
}

/** Whether all rows of a span are accounted for. */
export function isWholeSpan(
  { rowStart, rowEnd }: Pick<Span, "rowStart" | "rowEnd">,
  { rows, rejected, filtered, erased = 0 }: Omit<CommittedPart, "maker" | "rejectsSha256">,
): boolean {
  return rows + rejected + filtered + erased === rowEnd - rowStart;
}

/** A committed part, with the digest of its file. */
export type FinishedPart = CommittedPart & Digest;

/** `_manifest.json`: what a reader or auditor needs to know of a finished run. */
export interface Manifest {
  readonly format: "infer-batch-manifest";
  readonly version: 1;
  readonly run_id: string;
  readonly plan_id: string;
  readonly job: string;
  readonly params: Plan["params"];
  readonly model_sha256: string;
  /** The model's version and its origin in the registry; absent: the model has no versions. */
  readonly model?: ManifestModel | undefined;
  /** The table that the rows are of, and its version; absent: they are of files. */
  readonly table?: ManifestTable | undefined;
  readonly rows: number;
  readonly rows_rejected: number;
  readonly rows_filtered: number;
  /** Rows that `erase` has removed; absent: none. */
  readonly rows_erased?: number | undefined;
  readonly columns: readonly { readonly name: string; readonly type: string }[];
  readonly parts: readonly ManifestPart[];
  /** The run's profile, which later runs are compared with. */
  readonly profile: ProfileFile;
  /** What the attempt that finished the run did; for people and dashboards. */
  readonly attempt?: AttemptJson | undefined;
}

interface ManifestTable {
  readonly uri: string;
  readonly format: string;
  /** The version of a Delta table, or the id of a snapshot of an Iceberg table. */
  readonly version: string;
}

export interface ManifestModel {
  readonly uri: string;
  readonly version: string;
  /** The run that trained the model. */
  readonly run_id?: string | undefined;
  readonly tags?: Readonly<Record<string, string>> | undefined;
}

export interface ProfileFile {
  /** Path below the output folder. */
  readonly file: string;
  readonly sha256: string;
  /** Whether later runs are compared with it. */
  readonly baseline: boolean;
}

export interface ManifestPart {
  readonly file: string;
  readonly span: number;
  readonly rows: number;
  readonly rejected: number;
  /** Hex sha256 of the text of its file under `_rejects/`, whose name has the first 16 digits; null without rejects. */
  readonly rejects_sha256: string | null;
  readonly filtered: number;
  readonly erased?: number | undefined;
  readonly maker: CommittedBy;
  readonly size_bytes: number;
  readonly sha256: string;
}

const manifestSchema = z.object({
  format: z.literal("infer-batch-manifest"),
  version: z.literal(1),
  run_id: z.string(),
  plan_id: z.string(),
  job: z.string(),
  params: z.record(z.string(), z.string()),
  model_sha256: z.string(),
  model: z
    .object({
      uri: z.string(),
      version: z.string(),
      run_id: z.string().optional(),
      tags: z.record(z.string(), z.string()).optional(),
    })
    .optional(),
  table: z.object({ uri: z.string(), format: z.string(), version: z.string() }).optional(),
  rows: z.int(),
  rows_rejected: z.int(),
  rows_filtered: z.int(),
  rows_erased: z.int().optional(),
  columns: z.array(z.object({ name: z.string(), type: z.string() })),
  parts: z.array(
    z.object({
      file: z.string(),
      span: z.int(),
      rows: z.int(),
      rejected: z.int(),
      rejects_sha256: z.string().nullable(),
      filtered: z.int(),
      erased: z.int().optional(),
      maker: committedBySchema,
      size_bytes: z.int(),
      sha256: z.string(),
    }),
  ),
  profile: z.object({ file: z.string(), sha256: z.string(), baseline: z.boolean() }),
  attempt: z.record(z.string(), z.unknown()).optional(),
}) satisfies z.ZodType<Manifest>;

/**
 * Reads the manifest of this run if it is finished, and checks that its parts exist with the sizes that it names.
 * Returns undefined while the predictions are those of an earlier run.
 * @throws JobError OUTPUT_FOREIGN for another job's `_SUCCESS`, PLAN_CHANGED for a later run's, OUTPUT_DAMAGED
 */
export async function checkFinished(
  store: ReadableStore,
  layout: Layout,
  { plan, planId }: StoredPlan,
): Promise<Manifest | undefined> {
  // `_SUCCESS` is read before the manifest: an attempt that finishes the run at this moment writes the manifest first.
  const success = await store.readText(layout.success);
  const run = runIdIn(success);
  if (success === undefined || isEarlier(run, layout)) {
    return undefined;
  }
  const manifest = await readManifest(store, layout, run);
  if (isEarlier(manifest.run_id as RunId, layout)) {
    return undefined;
  }
  if (isLater(manifest.run_id as RunId, layout)) {
    throw superseded(layout, manifest.run_id);
  }
  if (manifest.run_id !== plan.runId) {
    throw new JobError(
      "OUTPUT_FOREIGN",
      `checking ${layout.folder}: it holds run ${manifest.run_id}, not ${plan.runId}`,
      {
        hint: "give each run a folder of its own, such as out/dt=${ds}",
      },
    );
  }
  if (manifest.plan_id !== planId) {
    throw damagedOutput(
      plan.runId,
      `reading ${layout.manifest}: it belongs to plan ${manifest.plan_id}, and the folder's plan is ${planId}`,
      "restore the folder",
    );
  }
  refuseDamaged(plan.runId, await differingParts(store, layout, manifest), repairOfParts(plan));
  return manifest;
}

/** Parses the manifest of any run; undefined for another text, or none. */
export function publishedManifest(text: string | undefined): Manifest | undefined {
  return text === undefined ? undefined : manifestSchema.safeParse(parseJson(text)).data;
}

async function differingParts(store: ReadableStore, layout: Layout, { parts }: Manifest): Promise<DamagedFile[]> {
  const sizes = await sizesIn(store, layout.folder);
  const damaged: DamagedFile[] = [];
  for (const part of parts) {
    const path = `${layout.folder}/${part.file}`;
    const sizeBytes = await sizes(part.file);
    if (sizeBytes !== part.size_bytes) {
      const is = sizeBytes === undefined ? "it is gone" : `it has ${sizeBytes} bytes`;
      damaged.push({ path, found: `${is}, the manifest says ${part.size_bytes} bytes` });
    }
  }
  return damaged;
}

/** Lists a folder once, and returns the sizes of its files by name: those that the list does not tell are asked for. */
export async function sizesIn(
  store: ReadableStore,
  folder: string,
): Promise<(name: string) => Promise<number | undefined>> {
  const entries = new Map((await store.list(folder)).map((entry) => [entry.name, entry]));
  return async (name) => {
    const entry = entries.get(name);
    return entry && (entry.sizeBytes ?? (await store.stat(`${folder}/${name}`))?.sizeBytes);
  };
}

async function readManifest(store: ReadableStore, layout: Layout, run: RunId | undefined): Promise<Manifest> {
  const manifest = manifestSchema.safeParse(parseJson((await store.readText(layout.manifest)) ?? ""));
  if (manifest.success) {
    return manifest.data;
  }
  if (run !== undefined && isSameJob(run, layout)) {
    throw damagedOutput(
      run,
      `reading ${layout.manifest}: it is gone or damaged`,
      "restore it; or delete _SUCCESS and run the same command again, which finishes the run anew",
    );
  }
  throw new JobError("OUTPUT_FOREIGN", `checking ${layout.folder}: it has a _SUCCESS but no manifest of this program`, {
    hint: "output.parquet.path must be a folder of its own",
  });
}

export function manifestText(
  { plan, planId }: StoredPlan,
  parts: readonly ManifestPart[],
  { profile, attempt }: { readonly profile: ProfileFile; readonly attempt: AttemptJson | undefined },
): string {
  const erased = parts.reduce((sum, part) => sum + (part.erased ?? 0), 0);
  const manifest: Manifest = {
    format: "infer-batch-manifest",
    version: 1,
    run_id: plan.runId,
    plan_id: planId,
    job: plan.job,
    params: plan.params,
    model_sha256: plan.model.sha256,
    ...tableOf(plan),
    ...modelOf(plan),
    rows: parts.reduce((sum, part) => sum + part.rows, 0),
    rows_rejected: parts.reduce((sum, part) => sum + part.rejected, 0),
    rows_filtered: parts.reduce((sum, part) => sum + part.filtered, 0),
    ...(erased === 0 ? {} : { rows_erased: erased }),
    columns: outputColumns(plan.contract).map(({ name, type }) => ({ name, type: showType(type) })),
    parts,
    profile,
    attempt,
  };
  return `${JSON.stringify(manifest, undefined, 1)}\n`;
}

function tableOf({ input: { table } }: Plan): Pick<Manifest, "table"> {
  return table === undefined ? {} : { table: { uri: table.uri, format: table.format, version: table.version } };
}

function modelOf({ model: { uri, version, origin } }: Plan): Pick<Manifest, "model"> {
  return version === undefined ? {} : { model: { uri, version, run_id: origin?.runId, tags: origin?.tags } };
}

/** Whether two manifests describe the same result of a run. The attempt that finished it may differ. */
export function describeSameRun(one: string | undefined, other: string): boolean {
  const [ofOne, ofOther] = [one, other].map(withoutAttempt);
  return ofOne !== undefined && ofOne === ofOther;
}

function withoutAttempt(text: string | undefined): string | undefined {
  const found = publishedManifest(text);
  return found === undefined ? undefined : JSON.stringify({ ...found, attempt: undefined });
}

/**
 * Returns how many seconds the attempt that judged the run has scored; of a run without checks, the one that finished it.
 * null: that attempt scored no row.
 */
export function secondsOf({ attempt }: Pick<Manifest, "attempt">): number | null {
  const { seconds, rows_scored: rows, scoring_seconds: scored } = attempt ?? {};
  const found = scored ?? (typeof rows === "number" && rows > 0 ? seconds : null);
  return typeof found === "number" ? found : null;
}
