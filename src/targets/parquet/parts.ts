import type { SpanProfile } from "../../checks/profile/profile.js";
import { outputColumns } from "../../models/binding/contract.js";
import { type RejectedRow, rejectReasons } from "../../columns/types.js";
import type { DuckDbAccess, DuckDBConnection } from "../../duckdb/instance.js";
import { firstLine } from "../../duckdb/sql.js";
import type { Plan } from "../../run/plan/plan.js";
import { spanAt, spanCount } from "../../run/plan/spans.js";
import { namesIn, type ReadableStore, type Stat, type Store } from "../../stores/store.js";
import { JobError, messageOf } from "../../base/errors.js";
import type { Opening, StoredPlan } from "../target.js";
import { type DamagedFile, refuseDamaged } from "./plan-file.js";
import type { ColumnIds } from "./part-file.js";
import { type Layout, runOfPart } from "./layout.js";
import {
  checkFinished,
  type CommittedPart,
  type FinishedPart,
  isWholeSpan,
  keptOf,
  type Manifest,
  type ManifestPart,
  type PartFacts,
  partSchema,
} from "./manifest.js";
import { z } from "../../base/zod.js";
import { parseJson } from "../../run/plan/parse-plan.js";
import { sha256Of } from "../../base/sha256.js";

/** A run at a target of Parquet files. */
export interface RunFolder {
  readonly store: Store;
  readonly layout: Layout;
  readonly stored: StoredPlan;
  /** Reads and writes parts; it may use the store's local folder. */
  readonly duckdb: DuckDbAccess;
  /** Throws when another plan is stored at the target, or a later run was opened. */
  readonly check: () => Promise<void>;
  /** Default: every part must be whole. */
  readonly how: Opening | undefined;
  /**
   * Has readers find the rows elsewhere, too, in one atomic act, before the run counts as published. Its parts are in
   * place, whole and durable. Safe to repeat, also for several attempts at once.
   * @throws JobError PLAN_CHANGED where a later run came first
   */
  readonly publish: (run: RunFolder, parts: readonly ManifestPart[]) => Promise<void>;
  /** undefined: columns have names only. */
  readonly columnIds: ColumnIds | undefined;
}

/** How runs are more than files in a folder. */
export interface BeyondFolder extends Pick<RunFolder, "publish"> {
  /** The ids that columns of the parts of a run have; undefined: they have names only. */
  readonly columnIds: (plan: Plan) => ColumnIds | undefined;
}

/** Readers find the rows of a run in its folder only. */
export const inFolder: BeyondFolder = { publish: () => Promise.resolve(), columnIds: () => undefined };

/** More attempts than a part can move: once, from where it is staged to its final path. */
const readsLimit = 10;

/**
 * Reads whether a run is finished, and its committed parts: all of a finished run, else those of the `wanted` spans. If
 * another attempt moves parts during the call, or removes them for a later run, it reads again.
 */
export async function committedParts(
  run: RunFolder,
  wanted: (span: number) => boolean,
): Promise<{ finished: boolean; parts: Map<number, CommittedPart> }> {
  const { store, layout, stored, check } = run;
  return await readingParts({ store, check }, async (reading) => {
    const manifest = await checkFinished(store, layout, stored);
    if (manifest !== undefined) {
      return { finished: true, parts: of(manifest) };
    }
    const paths = new Map([...(await listParts(store, layout))].filter(([span]) => wanted(span)));
    reading(paths);
    const parts = await inspectParts(run, paths);
    await check(); // parts that a later run removed must not be scored again
    return { finished: false, parts };
  });
}

/** Reads the profiles of committed parts, by span; a part without one is left out. */
export async function partProfiles(run: RunFolder, wanted: (span: number) => boolean): Promise<Map<number, string>> {
  const { store, layout, check } = run;
  return await readingParts({ store, check }, async (reading) => {
    const paths = new Map([...(await listParts(store, layout))].filter(([span]) => wanted(span)));
    reading(paths);
    return await readProfiles(run, paths);
  });
}

/** Calls `read` with the paths of all committed parts, and calls it again if a part was moved during the call. */
export async function readCommitted<T>(
  { store, layout, check }: Pick<RunFolder, "store" | "layout" | "check">,
  read: (paths: readonly string[]) => Promise<T>,
): Promise<T> {
  return await readingParts({ store, check }, async (reading) => {
    const paths = await listParts(store, layout);
    reading(paths);
    return await read([...paths.values()]);
  });
}

/** Runs `read`, which reports the paths of the parts that it reads, and runs it again if one of them disappears. */
async function readingParts<T>(
  { store, check }: Pick<RunFolder, "store" | "check">,
  read: (reading: (paths: ReadonlyMap<number, string>) => void) => Promise<T>,
): Promise<T> {
  for (let reads = 1; ; reads += 1) {
    let paths: ReadonlyMap<number, string> = new Map();
    try {
      return await read((known) => {
        paths = known;
      });
    } catch (error) {
      await check();
      if (reads === readsLimit || !(await isAnyGone(store, paths.values()))) {
        throw error;
      }
    }
  }
}

async function isAnyGone(store: Store, paths: Iterable<string>): Promise<boolean> {
  for (const path of paths) {
    if ((await store.stat(path)) === undefined) {
      return true;
    }
  }
  return false;
}

function of({ parts }: Manifest): Map<number, CommittedPart> {
  return new Map(
    parts.map(({ rejects_sha256: rejectsSha256, ...part }) => [part.span, keptOf({ ...part, rejectsSha256 })]),
  );
}

const partsPerQuery = 256;

/**
 * Lists the paths of a run's parts, by span. A part that a finish moves during the call is found: the staged folder is
 * listed first, then the final one.
 */
export async function listParts(store: Store, layout: Layout): Promise<Map<number, string>> {
  const paths = new Map<number, string>();
  for (const name of layout.parts === layout.folder ? [] : await namesIn(store, layout.parts)) {
    const span = layout.committedSpanOf(name);
    if (span !== undefined) {
      paths.set(span, `${layout.parts}/${name}`);
    }
  }
  for (const name of await namesIn(store, layout.folder)) {
    const span = layout.spanOf(name);
    if (span !== undefined) {
      paths.set(span, `${layout.folder}/${name}`);
    }
  }
  return paths;
}

/** Finds a span's part, at its final path or where it is staged, also while a finish moves it. */
export async function findPart(
  store: Store,
  layout: Layout,
  span: number,
): Promise<(Stat & { readonly path: string }) | undefined> {
  const [from = "", to = from] = layout.pathsOf(span);
  for (const path of to === from ? [to] : [to, from, to]) {
    const part = await store.stat(path);
    if (part !== undefined) {
      return { path, ...part };
    }
  }
  return undefined;
}

interface InspectedParts {
  readonly committed: Map<number, CommittedPart>;
  readonly damaged: DamagedFile[];
}

/** For a run to be discarded, returns the undamaged parts. */
function requireUndamaged(
  { plan }: StoredPlan,
  { committed, damaged }: InspectedParts,
  how: Opening | undefined,
): Map<number, CommittedPart> {
  if (how?.toDiscard === true) {
    return committed;
  }
  const unless = plan.staged
    ? "restore what was committed; or, if the run is held, discard it; or, if it is neither held nor approved, "
    : "";
  refuseDamaged(plan.runId, damaged, {
    one: `${unless}delete this file and run the same command again: its span is then scored anew`,
    more: `${unless}delete these files and run the same command again: their spans are then scored anew`,
  });
  return committed;
}

/**
 * Checks the label, rows and columns of parts, given by span, against the plan. Without parts, as in a new run, DuckDB's
 * library is not loaded.
 * @throws JobError OUTPUT_DAMAGED
 */
export async function inspectParts(
  { store, stored, duckdb, how }: RunFolder,
  names: ReadonlyMap<number, string>,
): Promise<Map<number, CommittedPart>> {
  const parts: InspectedParts = { committed: new Map(), damaged: [] };
  await eachFooter({ store, duckdb }, names, async (connection, files) => {
    const facts = await readGroup(
      connection,
      files.map(({ path }) => path),
    );
    for (const { span, name, path } of files) {
      const checked = checkPart(stored, span, facts.get(path));
      if (typeof checked === "object") {
        parts.committed.set(span, checked);
      } else {
        parts.damaged.push({ path: name, found: checked.replaceAll(path, name), cause: facts.get(path) });
      }
    }
  });
  return requireUndamaged(stored, parts, how);
}

/** Reads the profiles of parts, given and returned by span; a part without one is left out. */
export async function readProfiles(
  run: Pick<RunFolder, "store" | "duckdb">,
  names: ReadonlyMap<number, string>,
): Promise<Map<number, string>> {
  const profiles = new Map<number, string>();
  await eachFooter(run, names, async (connection, files) => {
    const { describeProfiles } = await import("./part-file.js"); // with it, DuckDB's library is loaded
    const texts = await describeProfiles(
      connection,
      files.map(({ path }) => path),
    );
    for (const { span, path } of files) {
      const text = texts.get(path);
      if (text !== undefined) {
        profiles.set(span, text);
      }
    }
  });
  return profiles;
}

/** Runs `work` for a bounded number of parts at a time, as files that have their footers. */
export async function eachFooter(
  { store, duckdb }: Pick<RunFolder, "store" | "duckdb">,
  names: ReadonlyMap<number, string>,
  work: (connection: DuckDBConnection, files: readonly PartOnMachine[]) => Promise<void>,
): Promise<void> {
  const parts = names.entries();
  for await (const paths of store.fetch(names.values(), "footer").groups) {
    const files = paths.map((path) => {
      const [span, name] = parts.next().value ?? [Number.NaN, path];
      return { span, name, path };
    });
    const connection = await duckdb.connect();
    try {
      for (let start = 0; start < files.length; start += partsPerQuery) {
        await work(connection, files.slice(start, start + partsPerQuery));
      }
    } finally {
      connection.closeSync();
    }
  }
}

interface PartOnMachine {
  readonly span: number;
  readonly name: string;
  readonly path: string;
}

async function readGroup(
  connection: DuckDBConnection,
  paths: readonly string[],
): Promise<Map<string, PartFacts | Error>> {
  const { describeParts } = await import("./part-file.js"); // with it, DuckDB's library is loaded
  try {
    const facts = await describeParts(connection, paths);
    return new Map(facts.map((part) => [part.path, part]));
  } catch (error) {
    const [path = "", ...others] = paths;
    if (others.length === 0) {
      return new Map([[path, error instanceof Error ? error : new Error(messageOf(error), { cause: error })]]);
    }
    const found = new Map<string, PartFacts | Error>();
    for (const one of paths) {
      for (const [key, value] of await readGroup(connection, [one])) {
        found.set(key, value);
      }
    }
    return found;
  }
}

function checkPart(stored: StoredPlan, span: number, facts: PartFacts | Error | undefined): CommittedPart | string {
  if (facts instanceof Error) {
    return firstLine(messageOf(facts));
  }
  const { plan, planId } = stored;
  const { rowStart, rowEnd } = spanAt(plan, span);
  const schema = partSchema(outputColumns(plan.contract));
  const label = facts?.label;
  if (facts === undefined || label === undefined) {
    return "it is not labelled as a part";
  }
  if (span >= spanCount(plan) || label.span !== span || label.runId !== plan.runId || label.planId !== planId) {
    return `it is labelled as span ${label.span} of run ${label.runId}, plan ${label.planId.slice(0, 12)}`;
  }
  if (label.rowStart !== rowStart || label.rowEnd !== rowEnd || !isWholeSpan(label, { ...label, rows: facts.rows })) {
    return `it holds ${facts.rows} rows, rejected ${label.rejected} and filtered out ${label.filtered} where the plan has rows ${rowStart} to ${rowEnd}`;
  }
  return facts.schema === schema
    ? keptOf({ ...label, rows: facts.rows })
    : `its columns are (${facts.schema}), planned (${schema})`;
}

/** The committed spans of a run, as far as this attempt has read or committed them. */
export interface CommittedSpans {
  readonly parts: Map<number, CommittedPart>;
  /** Parts that this attempt committed or adopted. */
  readonly own: Map<number, FinishedPart>;
  /** The spans that this attempt committed itself, whose profiles are part of `profile`. */
  readonly profiled: Set<number>;
  /** The merged profiles of spans that this attempt committed itself. */
  profile: SpanProfile;
}

/** Consecutive rows of a span, in a Parquet file of this machine without a label. */
export interface SpilledPiece {
  readonly path: string;
  readonly rows: number;
}

const schema = z.object({
  shard: z.string(),
  row: z.int(),
  columns: z.record(z.string(), z.string().nullable()),
  column: z.string().nullable(),
  reason: z.enum(rejectReasons),
  value: z.string().nullable(),
}) satisfies z.ZodType<RejectedRow>;

/** A span's rejected rows as text: a line of JSON each. */
export interface RejectsText {
  readonly text: string;
  /** Hex sha256 of the text; null without rejects. */
  readonly sha256: string | null;
}

export function textOfRejects(rejects: readonly RejectedRow[]): RejectsText {
  const text = rejects.map((rejected) => `${JSON.stringify(rejected)}\n`).join("");
  return { text, sha256: rejects.length === 0 ? null : sha256Of(text) };
}

/**
 * Yields the rejected rows of committed spans. `parts`: the labels that name the files of rejects.
 * @throws JobError OUTPUT_DAMAGED when a file is not the one that its part names
 */
export async function* readRejects(
  store: ReadableStore,
  layout: Layout,
  parts: ReadonlyMap<number, Pick<CommittedPart, "rejectsSha256">>,
): AsyncGenerator<RejectedRow> {
  for (const [span, { rejectsSha256 }] of [...parts].toSorted(([one], [other]) => one - other)) {
    if (rejectsSha256 === null) {
      continue;
    }
    const path = `${layout.rejects}/${layout.rejectsOf(span, rejectsSha256)}`;
    const text = await store.readText(path);
    if (text === undefined || sha256Of(text) !== rejectsSha256) {
      const found = text === undefined ? "it is gone" : "it is not what was written with its part";
      throw new JobError("OUTPUT_DAMAGED", `reading ${path}: ${found}`, {
        hint: "restore the file; the predictions are not affected",
      });
    }
    for (const line of text.split("\n").slice(0, -1)) {
      yield schema.parse(parseJson(line));
    }
  }
}

/**
 * Lists files of rejects of this run that no part names: their attempts died, or another attempt committed the span
 * first.
 */
export async function staleRejects(
  store: ReadableStore,
  layout: Layout,
  parts: ReadonlyMap<number, Pick<CommittedPart, "rejectsSha256">>,
): Promise<string[]> {
  const wanted = new Set(
    [...parts].map(([span, { rejectsSha256: sha256 }]) =>
      sha256 === null ? undefined : layout.rejectsOf(span, sha256),
    ),
  );
  const names = await namesIn(store, layout.rejects);
  return names.filter((name) => runOfPart(name) === layout.runId && !wanted.has(name));
}
