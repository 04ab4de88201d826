import { JobError, reworded } from "../base/errors.js";
import { lakeTableError, lakeTables } from "./plan/lake-tables.js";
import type { Listing, Source, OpenShard } from "../sources/source.js";
import {
  atKey,
  type PlacedSpec,
  type Log,
  type OpenedJob,
  type Attempt,
  type Reporter,
  type Input,
  type Job,
} from "../flow/opened-job.js";
import { isSameShard, type ListedShard } from "./plan/compare.js";
import type { Plan, PlannedShard } from "./plan/plan.js";
import type { JobSpec } from "../job/jobfile/job-spec.js";
import { showDuration, count } from "../base/shown-numbers.js";
import { type Column, type ColumnType, type SourceColumn, showColumnType } from "../columns/types.js";
import type { Decoder, LegacyDates, ShardFile, ShardFooter, ShardSchema } from "../formats/format.js";
import { partitionColumns } from "./plan/partitions.js";
import { type ColumnRef, type Contract, boundColumns, usedColumns } from "../models/binding/contract.js";
import { logicalDateOf } from "./lifecycle/published-run.js";
import { type SliceOfRun, windowsAhead } from "../flow/read.js";
import { didYouMean } from "../base/suggest.js";
import { instantOf } from "../report/calls.js";

/* The input of a run: how it is waited for and listed, and what its footers and its dates say. */

const inputPath = ["input", "path"];

const laterInputHint = "run the same command again when the input is there, or correct input.path";
const pathHint = "paths are relative to the spec's folder; input.wait makes a run wait for input that comes later";

const rootsAtOnce = 8;

async function awaitInput(spec: JobSpec, source: Source): Promise<void> {
  const { ready } = spec.input;
  if (ready !== undefined && !(await source.exists(ready))) {
    throw new JobError("INPUT_NOT_READY", `waiting for input: ${ready} (input.ready) is not there yet`, {
      hint: "run the same command again later; exit code 75 tells a scheduler to retry",
    });
  }
}

/** @param plan of the run that reads it; undefined: it is still to be planned */
export async function listInput(job: PlacedSpec, { source, chain }: Input, plan?: Plan): Promise<Listing> {
  const { table, kafka } = job.spec.input;
  const key = kafka !== undefined ? ["input", "kafka"] : table === undefined ? inputPath : ["input", "table"];
  const { on_rewrite: onRewrite = "fail" } = job.spec.input;
  const wanted = plan?.input ?? { changes: chain && { from: chain.from, to: chain.to, onRewrite } };
  const listing = await atKey(job, key, () => source.list(job.spec.input.path, wanted));
  return plan === undefined ? listing : plannedFiles(listing, plan);
}

/** Of a version of a table, the files that its plan has: those of which `input.where` keeps no row are left out of it. */
export function plannedFiles(listing: Listing, { input: { table, shards } }: Plan): Listing {
  const planned = new Set(shards.map(({ uri }) => uri));
  return table === undefined ? listing : { ...listing, shards: listing.shards.filter(({ uri }) => planned.has(uri)) };
}

/** The input of the plan that counts: another attempt may have planned another version of a table. */
export async function listPlanned(job: PlacedSpec, input: Input, plan: Plan, listing: Listing): Promise<Listing> {
  const [planned, listed] = [plan.input.table, listing.table];
  const isSameVersion =
    planned?.version === listed?.version &&
    planned?.schemaId === listed?.schemaId &&
    plan.input.changes?.from === listing.changes?.from;
  return isSameVersion ? plannedFiles(listing, plan) : await listInput(job, input, plan);
}

/** The input of a run that is published: files of a table may be gone by then, and nothing is added to a version. */
export async function listPublished(
  job: PlacedSpec,
  input: Input,
  { input: { table, shards } }: Plan,
): Promise<Listing> {
  return table === undefined ? await listInput(job, input) : { ...(await input.source.list([])), table, shards };
}

/** The job's input as it is now, all of it. @throws JobError as `awaitInput`, `listInput` and `requireWhole` */
export async function wholeInput(job: PlacedSpec, input: Input): Promise<Listing> {
  await awaitInput(job.spec, input.source);
  const listing = await listInput(job, input);
  await requireWhole(job, input.source, listing);
  return listing;
}

/**
 * Refuses a listing that lacks rows that `input.path` names, or has rows that do not count. Only planning calls it:
 * from then on the plan names the input.
 * @throws JobError FILE_MISSING, SPEC_INVALID, INPUT_NOT_READY
 */
export async function requireWhole(job: PlacedSpec, source: Source, listing: Listing): Promise<void> {
  requireListed(job, listing);
  requireFolders(job, listing);
  await atKey(job, inputPath, () => refuseLakeTables(source, listing));
  refuseUncommitted(job.spec, listing);
}

export function warnOfUnmatched(log: Log, { shards, unmatched }: Listing): void {
  if (shards.length > 0 && unmatched.length > 0) {
    log.warn(`no file matches ${unmatched.join(", ")}; other patterns of input.path have some`);
  }
}

/**
 * Refuses a listing that lacks a named file or has a match that cannot be read.
 * @throws JobError FILE_MISSING for a path without wildcards that does not exist, SPEC_INVALID for a match that is no
 * file
 */
export function requireListed({ where }: PlacedSpec, { missingFiles, unreadable: [unread, ...others] }: Listing): void {
  if (missingFiles.length > 0) {
    throw new JobError("FILE_MISSING", `reading ${where(inputPath)}: there is no ${missingFiles.join(", ")}`, {
      hint: pathHint,
    });
  }
  if (unread !== undefined) {
    const { pattern, path, finding, hint } = unread;
    const more = others.length === 0 ? "" : ` (and ${others.length} more that cannot be read)`;
    throw new JobError("SPEC_INVALID", `reading ${where(inputPath)}: ${pattern} finds ${path}, ${finding}${more}`, {
      hint,
    });
  }
}

/** Temporary if its parent exists, as for a day that is still to come; else the path is wrong. */
function requireFolders({ spec, where }: PlacedSpec, { missingFolders }: Listing): void {
  const first = missingFolders.find(({ parentExists }) => !parentExists) ?? missingFolders[0];
  if (first === undefined) {
    return;
  }
  const found = `there is no folder ${first.folder} (${first.pattern})`;
  throw first.parentExists
    ? new JobError("INPUT_NOT_READY", `planning ${spec.name}: ${found}`, {
        hint: laterInputHint,
      })
    : new JobError("FILE_MISSING", `reading ${where(inputPath)}: ${found}`, {
        hint: pathHint,
      });
}

/** Refuses files below `_temporary`, which a job of Spark or Hadoop has not committed: they may hold rows twice. */
function refuseUncommitted(spec: JobSpec, { shards }: Listing): void {
  const uncommitted = shards.find(({ uri }) => uri.includes("/_temporary/"));
  if (uncommitted !== undefined) {
    throw new JobError(
      "INPUT_NOT_READY",
      `planning ${spec.name}: ${uncommitted.uri} was written by a job of Spark or Hadoop that has not committed it`,
      {
        hint: "run the same command again when that job is done; if it died, remove _temporary, or write a pattern that leaves it out",
      },
    );
  }
}

/** Not all files of a lakehouse table are current. */
async function refuseLakeTables(source: Source, { tableRoots }: Listing): Promise<void> {
  const roots = [...new Map(tableRoots.map(({ folder, pattern }) => [folder, pattern]))];
  for (let start = 0; start < roots.length; start += rootsAtOnce) {
    const group = roots.slice(start, start + rootsAtOnce);
    await Promise.all(
      group.flatMap(([folder, pattern]) =>
        lakeTables.map(async (table) => {
          const names = await source.listNames(`${folder}/${table.log}`);
          if (names.some((name) => table.isLogFile(name))) {
            throw lakeTableError(pattern, folder, table);
          }
        }),
      ),
    );
  }
}

const firstPauseMs = 1000;
const pauseGrowth = 1.5;
const longestPauseMs = 60_000;
/** A pause lasts at least this many times the last listing: large ones take long and cost money in S3. */
const pausePerListing = 20;
const logAgainMs = 30 * 60_000;

/**
 * Lists the input and calls `work` with the listing. With `input.wait` it first waits until `input.ready` exists, at
 * least one shard exists, and so does every path without wildcards. If `work` then finds that the input is not ready
 * (`input.min_rows`, or a shard changes while it is read), it waits and calls `work` again with a new listing.
 * @throws JobError INPUT_NOT_READY when the time is over; the signal's reason; the errors of `work`
 */
export async function withInput<T>(opened: OpenedJob, work: (listing: Listing) => Promise<T>): Promise<T> {
  const { job, input, attempt, reporter } = opened;
  const waitSeconds = job.spec.input.wait;
  if (waitSeconds === undefined) {
    return await work(await wholeInput(job, input));
  }
  const pauses = createPauses(attempt, reporter, waitSeconds);
  let refused: Refused | undefined;
  for (;;) {
    const startedMs = attempt.nowMs();
    const found = await listWhenReady(job, input, refused);
    if (found instanceof JobError) {
      await pauses.pause(found, attempt.nowMs() - startedMs);
      continue;
    }
    pauses.end();
    try {
      return await work(found);
    } catch (error) {
      if (!isNotReady(error)) {
        throw error;
      }
      // The same listing may be planned if a shard was written to while the run was planned.
      const isWritten = error.cause instanceof JobError && error.cause.code === "INPUT_CHANGED";
      refused = { listing: isWritten ? undefined : found, error };
      await pauses.pause(error, 0);
    }
  }
}

interface Refused {
  /** This listing is refused until it changes; undefined: it may be tried again. */
  readonly listing: Listing | undefined;
  readonly error: JobError;
}

async function listWhenReady(job: PlacedSpec, input: Input, refused: Refused | undefined): Promise<Listing | JobError> {
  const { source } = input;
  let listing: Listing;
  try {
    await awaitInput(job.spec, source);
    listing = await listInput(job, input);
    if (refused?.listing !== undefined && isSame(listing, refused.listing)) {
      return refused.error;
    }
    const missing = [...listing.missingFiles, ...listing.missingFolders.map(({ folder }) => `folder ${folder}`)];
    if (missing.length > 0) {
      return notThere(`there is no ${missing.join(", ")}`);
    }
    await requireWhole(job, source, listing);
  } catch (error) {
    if (isNotReady(error)) {
      return error;
    }
    throw error;
  }
  if (listing.shards.length === 0) {
    return notThere(noShards(job.spec));
  }
  return listing;
}

/** Says that the input has no shards. */
export function noShards({ input: { path, table } }: JobSpec): string {
  return table === undefined ? `no file matches ${path.join(", ")}` : `table ${table} has no rows`;
}

function notThere(found: string): JobError {
  return new JobError("INPUT_NOT_READY", `waiting for input: ${found}`, { hint: laterInputHint });
}

function isNotReady(error: unknown): error is JobError {
  return error instanceof JobError && error.code === "INPUT_NOT_READY";
}

function isSame({ shards: some }: Listing, { shards: others }: Listing): boolean {
  return (
    some.length === others.length &&
    some.every((shard, index) => {
      const other = others[index];
      return other !== undefined && isSameShard(shard, other);
    })
  );
}

interface Pauses {
  /** @throws JobError when the time is over; the signal's reason */
  pause(why: JobError, listingMs: number): Promise<void>;
  end(): void;
}

function createPauses({ nowMs, sleep }: Attempt, { log, record }: Reporter, waitSeconds: number): Pauses {
  const startedMs = nowMs();
  let nextMs = firstPauseMs;
  const logged = { message: "", ms: startedMs };
  const waitedSeconds = (): number => (nowMs() - startedMs) / 1000;
  return {
    async pause(why, listingMs) {
      const leftMs = waitSeconds * 1000 - (nowMs() - startedMs);
      if (leftMs <= 0) {
        const waited = waitSeconds === 0 ? "" : ` (waited ${showDuration(waitSeconds)})`;
        throw reworded(why, { message: `${why.message}${waited}` });
      }
      if (why.message !== logged.message || nowMs() - logged.ms >= logAgainMs) {
        const left = showDuration(leftMs / 1000);
        log.info(`${why.message}; checking again for up to ${left} (input.wait)`);
        logged.message = why.message;
        logged.ms = nowMs();
      }
      await sleep(Math.min(leftMs, Math.max(nextMs, pausePerListing * listingMs)));
      nextMs = Math.min(longestPauseMs, nextMs * pauseGrowth);
      record.inputWaitSeconds = waitedSeconds();
    },
    end() {
      if (logged.message !== "") {
        log.info(`found the input after ${showDuration(waitedSeconds())}`);
      }
    },
  };
}

/** Shards opened at once while footers are read, if that many files may be opened. */
const footerConcurrency = 256;

/** The columns of a shard, including those of its folder names. */
export interface SeenSchema {
  readonly shard: ListedShard;
  readonly name: string;
  readonly columns: readonly SourceColumn[];
  readonly legacyDates: readonly LegacyDates[];
}

export function seenSchema(
  spec: JobSpec,
  { shard, file: { name, table } }: { readonly shard: ListedShard; readonly file: ShardFile },
  { schema }: ShardFooter,
): SeenSchema {
  const fromFolders = table === undefined ? partitionColumns(shard.uri, schema.columns, spec.input.partitions) : [];
  return { shard, name, ...schema, columns: [...schema.columns, ...fromFolders] };
}

/** Reads the columns of a shard. */
export async function readSchema(
  spec: JobSpec,
  source: Source,
  shard: ListedShard,
  decoder: Decoder,
): Promise<SeenSchema | undefined> {
  await using file = await source.open(shard);
  for await (const footer of decoder.footers([file])) {
    return seenSchema(spec, { shard, file }, footer);
  }
  return undefined;
}

/** The content of the footers of all shards. */
export interface SeenShards {
  readonly shards: readonly PlannedShard[];
  readonly rows: number;
  /** The schemas that differ. */
  readonly schemas: readonly SeenSchema[];
  /** Encrypted columns, each with the first shard that has it encrypted. */
  readonly encrypted: ReadonlyMap<string, string>;
  /** NULLs that the shards' statistics state, by column; columns without any are left out. */
  readonly nulls: ReadonlyMap<string, number>;
  /** Values of the column of `input.freshness` that are not in the files, as texts. */
  readonly partitionDates: ReadonlySet<string>;
}

/** Whether planning may reject the input for too few or too old rows: it is then read before the model is loaded. */
export function mayNotBeReady({ input }: JobSpec, listed: readonly ListedShard[]): boolean {
  return listed.length === 0 || input.wait !== undefined || input.min_rows > 1 || input.freshness !== undefined;
}

/**
 * Reads the footers of all shards, and for `input.freshness` one column.
 * @throws JobError INPUT_NOT_READY if there are fewer rows than `input.min_rows`, the rows are too old, or a shard
 * changes while it is read
 */
export async function readShards(
  opened: OpenedJob,
  decoder: Decoder,
  listed: readonly ListedShard[],
): Promise<SeenShards> {
  const { job } = opened;
  const { name, input } = job.spec;
  const path = input.path.join(", ");
  if (listed.length === 0) {
    throw new JobError("INPUT_NOT_READY", `planning ${name}: ${noShards(job.spec)}`, { hint: laterInputHint });
  }
  const seen = await readFooters(opened, decoder, listed).catch((error: unknown) => {
    throw inputChangedWhilePlanning(error, job.spec);
  });
  const rows = listed.reduce((sum, { ofTable }) => sum - (ofTable?.removedRows ?? 0), seen.rows);
  if (rows < input.min_rows) {
    const found = `${path} has ${count(rows, "row")} in ${count(listed.length, "file")}, input.min_rows is ${input.min_rows}`;
    throw new JobError("INPUT_NOT_READY", `planning ${name}: ${found}`, { hint: laterInputHint });
  }
  await checkFreshness(opened, decoder, seen).catch((error: unknown) => {
    throw inputChangedWhilePlanning(error, job.spec);
  });
  return seen;
}

/** A temporary error: nothing is planned yet that the shard could differ from. */
function inputChangedWhilePlanning(error: unknown, { name }: JobSpec): unknown {
  return error instanceof JobError && error.code === "INPUT_CHANGED"
    ? new JobError("INPUT_NOT_READY", `planning ${name}: the input changes while it is read: ${error.message}`, {
        hint: "run the same command again when the input is no longer written to; with input.ready, a run waits for a marker file that is written last",
        cause: error,
      })
    : error;
}

/** If one cannot be opened, none stays open. */
async function openAll(source: Pick<Source, "open">, shards: readonly ListedShard[]): Promise<OpenShard[]> {
  const opening = await Promise.allSettled(shards.map((shard) => source.open(shard)));
  const opened = opening.flatMap((one) => (one.status === "fulfilled" ? [one.value] : []));
  for (const one of opening) {
    if (one.status === "rejected") {
      await Promise.all(opened.map((shard) => shard[Symbol.asyncDispose]()));
      throw one.reason;
    }
  }
  return opened;
}

async function readFooters(opened: OpenedJob, decoder: Decoder, listed: readonly ListedShard[]): Promise<SeenShards> {
  const { spec } = opened.job;
  const { source, filesAtOnce } = opened.input;
  const { signal } = opened.attempt;
  const shards: PlannedShard[] = [];
  const encrypted = new Map<string, string>();
  const nulls = new Map<string, number>();
  const partitionDates = new Set<string>();
  const verifying = spec.input.verify === "full" ? verifyShards(signal, opened.reporter.log, decoder) : undefined;
  /** Schemas by the columns of the file, then by the names of the folder columns: many shards share few. */
  const schemas = new Map<ShardSchema, Map<string, SeenSchema>>();
  const concurrency = filesAtOnce(footerConcurrency);
  for (let start = 0; start < listed.length; start += concurrency) {
    signal.throwIfAborted();
    const group = listed.slice(start, start + concurrency);
    const files = await openAll(source, group);
    try {
      let index = 0;
      for await (const footer of decoder.footers(files)) {
        const shard = group[index];
        const file = files[index];
        index += 1;
        if (shard !== undefined && file !== undefined) {
          const sha256 = await verifying?.shard(file);
          const { uri, sizeBytes, fingerprint } = shard;
          const planned = { uri, sizeBytes, fingerprint, rows: footer.rows };
          shards.push(sha256 === undefined ? planned : { ...planned, sha256 });
          const date = file.partitions.get(spec.input.freshness?.column ?? "") ?? undefined;
          if (footer.rows > 0 && date !== undefined) {
            partitionDates.add(date);
          }
          for (const column of footer.encrypted) {
            encrypted.set(column, encrypted.get(column) ?? file.name);
          }
          for (const [column, stated] of footer.nulls) {
            nulls.set(column, (nulls.get(column) ?? 0) + stated);
          }
          const seen = seenSchema(spec, { shard, file }, footer);
          const same = schemas.get(footer.schema) ?? new Map<string, SeenSchema>();
          const folders = seen.columns.slice(footer.schema.columns.length).map(({ name }) => name);
          schemas.set(footer.schema, same.set(folders.join("/"), same.get(folders.join("/")) ?? seen));
        }
      }
      if (index !== group.length) {
        throw new Error(`${index} footers came of ${group.length} shards`); // else rows would be left out
      }
      await Promise.all(files.map((file) => file.check()));
    } finally {
      await Promise.all(files.map((shard) => shard[Symbol.asyncDispose]()));
    }
  }
  verifying?.logSummary();
  const seen = [...schemas.values()].flatMap((same) => Array.from(same.values()));
  const rows = shards.reduce((sum, shard) => sum + shard.rows, 0);
  return { shards, rows, schemas: seen, encrypted, nulls, partitionDates };
}

interface NamedSchema {
  readonly name: string;
  readonly columns: readonly SourceColumn[];
}

/** Gives columns that have NULLs only, and so no type, the type that the first other shard with a type has. */
export function withTypesOf<T extends NamedSchema>(others: readonly NamedSchema[], shard: T): T {
  const typed = (column: SourceColumn): SourceColumn =>
    others.map((other) => find(other, column.name)).find((found) => found?.type !== undefined) ?? column;
  return { ...shard, columns: shard.columns.map((column) => (column.onlyNulls === true ? typed(column) : column)) };
}

/**
 * Checks that the columns that the job uses are in every shard with the same type; their order may differ. A column
 * with NULLs only fits any type, except in expressions and as a struct whose fields are used; expressions take it as
 * NULL where no shard has a type for it.
 * @throws JobError SCHEMA_MISMATCH
 */
export function refuseDrift(contract: Contract, first: NamedSchema | undefined, other: NamedSchema | undefined): void {
  const needType = new Set([
    ...(contract.expressions?.list.flatMap(({ uses }) => uses) ?? []),
    ...boundColumns(contract).flatMap(({ path }) => (path.length > 1 ? path.slice(0, 1) : [])),
  ]);
  for (const name of usedColumns(contract)) {
    const expected = typeIn(first, name);
    const found = typeIn(other, name);
    const onlyNulls = find(other, name)?.onlyNulls === true && find(first, name)?.partition !== true;
    const isTyped = find(first, name)?.onlyNulls !== true;
    if (onlyNulls ? isTyped && needType.has(name) : found !== expected) {
      throw new JobError(
        "SCHEMA_MISMATCH",
        `planning: column \`${name}\` is ${found} in ${other?.name}, but ${expected} in ${first?.name}`,
        {
          hint: "the columns that the job uses must have the same type in all shards; write that shard again, or take it out of input.path",
        },
      );
    }
  }
}

function find(shard: NamedSchema | undefined, name: string): SourceColumn | undefined {
  return shard?.columns.find((candidate) => candidate.name === name);
}

function typeIn(shard: NamedSchema | undefined, name: string): string {
  const column = find(shard, name);
  return column === undefined ? "missing" : `${showColumnType(column)}${column.isUtc === true ? " in UTC" : ""}`;
}

const dayMs = 86_400_000;
const columnKey = ["input", "freshness", "column"];

const unitsMs = new Map<ColumnType, number>([
  ["date32", dayMs],
  ["timestamp[us]", 1e-3],
  ["timestamp[ns]", 1e-6],
  ["timestamp[us, UTC]", 1e-3],
]);

async function checkFreshness(opened: OpenedJob, decoder: Decoder, seen: SeenShards): Promise<void> {
  const { job, input, attempt, reporter } = opened;
  const { log } = reporter;
  const { spec } = job;
  const { freshness } = spec.input;
  if (freshness === undefined) {
    return;
  }
  const column = await atKey(job, columnKey, () => Promise.resolve(datedColumn(freshness.column, seen)));
  const newest = await newestValue(input.source, attempt.signal, decoder, { column, seen });
  const reference = referenceOf(job, attempt);
  const name = `\`${freshness.column}\``;
  if (newest === undefined) {
    judgeAge(spec, log, Number.POSITIVE_INFINITY, () => `no row of the input has a value in ${name}`);
    return;
  }
  const ms = instantOfValue(newest, column.type, spec.timezone);
  const age = (reference.ms - ms) / 1000;
  const found = `the newest ${name} of the input is ${showValue(newest, column.type)}`;
  const describe = (ageText: string): string => (age > 0 ? `${found}, ${ageText} before ${reference.name}` : found);
  log.debug(describe(showAge(age)));
  judgeAge(spec, log, age, describe);
}

/** `age` is in seconds. `describe`: says what was found, with the age as a text. */
function judgeAge(spec: JobSpec, log: Log, age: number, describe: (ageText: string) => string): void {
  const { warn_after: warn = Number.POSITIVE_INFINITY, error_after: error = Number.POSITIVE_INFINITY } =
    spec.input.freshness ?? {};
  if (age > error) {
    const show = ageShower(age, error);
    throw new JobError(
      "INPUT_NOT_READY",
      `planning ${spec.name}: ${describe(show(age))}; input.freshness.error_after is ${show(error)}`,
      { hint: "run the same command again when the input is refreshed, or raise input.freshness.error_after" },
    );
  }
  if (age > warn) {
    const show = ageShower(age, warn);
    log.warn(`${describe(show(age))}; input.freshness.warn_after is ${show(warn)}`);
  }
}

function datedColumn(name: string, { schemas, encrypted }: SeenShards): ColumnRef {
  const [first, ...others] = schemas;
  const typed = first === undefined ? undefined : withTypesOf(others, first);
  const columns: readonly SourceColumn[] = typed?.columns ?? [];
  const found = columns.find((column) => column.name === name);
  if (found === undefined) {
    const names = columns.map((column) => column.name);
    throw new JobError("SPEC_INVALID", `there is no column \`${name}\` in ${first?.name}${didYouMean(name, names)}`, {
      hint: "computed columns (input.columns) cannot be used here",
    });
  }
  if (encrypted.has(name)) {
    throw new JobError("SPEC_INVALID", `column \`${name}\` of ${encrypted.get(name)} is encrypted`, {
      hint: "encrypted columns are not supported",
    });
  }
  const { type, partition, sourceType } = found;
  if (type === undefined || !unitsMs.has(type)) {
    throw new JobError("SPEC_INVALID", `column \`${name}\` is ${sourceType}, expected a date or a timestamp`, {
      hint: "for a column of folder names, write its type in input.partitions, such as dt: date",
    });
  }
  const column: ColumnRef = { name, path: [name], type, ...(partition === true ? { partition } : {}) };
  for (const other of schemas) {
    refuseDrift(contractOf(column), typed, other);
  }
  return column;
}

function contractOf(column: ColumnRef): Contract {
  const passthrough = [{ column: column.name, source: column }];
  const none = { inputs: [], outputs: [], fixedBatchRows: null, expressions: null };
  return { ...none, passthrough, cast: "exact", missing: "bad_row" };
}

interface DatedShards {
  readonly column: ColumnRef;
  readonly seen: Pick<SeenShards, "shards" | "partitionDates">;
}

/** In the units of the column's type; undefined: all values are NULL. */
async function newestValue(
  source: Source,
  signal: AbortSignal,
  decoder: Decoder,
  { column, seen: { shards, partitionDates } }: DatedShards,
): Promise<bigint | undefined> {
  if (column.partition === true) {
    const unitMs = unitsMs.get(column.type) ?? dayMs;
    const values = [...partitionDates].map((date) => BigInt(Math.round(partitionMs(date) / unitMs)));
    return values.reduce<bigint | undefined>(
      (newest, value) => (newest === undefined || value > newest ? value : newest),
      undefined,
    );
  }
  let newest: bigint | undefined;
  const tools = { source: source, decoder, projection: contractOf(column) };
  for await (const window of windowsAhead(tools, wholeShards(shards))) {
    signal.throwIfAborted();
    try {
      await window.there;
      for await (const { carried } of decoder.read(window.requests)) {
        newest = maximum(newest, carried[0]);
      }
      for (const shard of window.shards) {
        await shard.check();
      }
    } finally {
      await window.done();
    }
  }
  return newest;
}

/** The instant of a date, or of a time in UTC: "2026-11-20", "2026-11-20 06:00:00". */
function partitionMs(text: string): number {
  const time = text.length === 10 ? `${text}T00:00:00` : text.replace(" ", "T").replace(/(?:Z|[+]00(?::00)?)$/, "");
  return Date.parse(`${time}Z`);
}

function* wholeShards(shards: readonly PlannedShard[]): Generator<readonly SliceOfRun[]> {
  let rowStart = 0;
  for (const shard of shards) {
    if (shard.rows > 0) {
      yield [{ slice: { shard, rowStart: 0, rowEnd: shard.rows }, rowStart }];
    }
    rowStart += shard.rows;
  }
}

function maximum(so: bigint | undefined, column: Column | undefined): bigint | undefined {
  if (column?.kind !== "fixed") {
    throw new Error("expected a fixed column of dates");
  }
  const { data, valid } = column;
  let most: bigint | number | undefined = so;
  for (let row = 0; row < data.length; row += 1) {
    const value = data[row] as bigint | number;
    if ((valid === undefined || valid[row] !== 0) && (most === undefined || value > most)) {
      most = value;
    }
  }
  return most === undefined ? undefined : BigInt(most);
}

/** Returns the instant that ages are measured at: now, or the end of the logical date if that is earlier. */
function referenceOf({ spec, dateParam }: Job, { dateMs }: Attempt): { readonly ms: number; readonly name: string } {
  const now = dateMs();
  const date = logicalDateOf({ params: spec.params, dateParam: dateParam ?? null });
  const end = date === undefined ? now : instantOf(Date.parse(`${date}T00:00:00Z`) + dayMs, spec.timezone);
  return end < now ? { ms: end, name: `the end of ${date}` } : { ms: now, name: "now" };
}

/** 0001-01-01 and 9999-12-30: what can be shown. A column's greatest value may be infinite. */
const [firstMs, lastMs] = [-62_135_596_800_000, Date.UTC(9999, 11, 30)];

function millisecondsOf(value: bigint, type: ColumnType): number {
  const ms = Number(value) * (unitsMs.get(type) ?? 1);
  return Math.min(Math.max(Math.floor(ms), firstMs), lastMs);
}

/** A date counts as the end of its day, because its rows belong to that whole day. */
function instantOfValue(value: bigint, type: ColumnType, timezone: string): number {
  const ms = millisecondsOf(value, type);
  return type === "timestamp[us, UTC]" ? ms : instantOf(type === "date32" ? ms + dayMs : ms, timezone);
}

function showValue(value: bigint, type: ColumnType): string {
  const text = new Date(millisecondsOf(value, type)).toISOString();
  return type === "date32"
    ? text.slice(0, 10)
    : `${text.slice(0, 19).replace("T", " ")}${type === "timestamp[us, UTC]" ? " UTC" : ""}`;
}

/** Shows an age: "36 h 10 min", and from two days on "3 days 4 h". */
function showAge(seconds: number): string {
  const days = Math.floor(seconds / 86_400);
  const rest = seconds - days * 86_400;
  return days < 2 ? showDuration(seconds) : rest < 3600 ? `${days} days` : `${days} days ${Math.floor(rest / 3600)} h`;
}

/** Rounded, unless both would read the same. */
function ageShower(age: number, limit: number): (seconds: number) => string {
  return Number.isFinite(age) && showAge(age) === showAge(limit) ? showExactly : showAge;
}

const longUnits = [
  ["days", dayMs],
  ["h", 3_600_000],
  ["min", 60_000],
] as const;

/** Shows an age to the millisecond: "24 h 1 s", and from two days on "3 days 4 h 2.5 s". */
function showExactly(seconds: number): string {
  let rest = Math.round(seconds * 1000);
  const parts: string[] = [];
  for (const [unit, ms] of rest < 2 * dayMs ? longUnits.slice(1) : longUnits) {
    const whole = Math.floor(rest / ms);
    rest -= whole * ms;
    parts.push(...(whole > 0 ? [`${whole} ${unit}`] : []));
  }
  return [...parts, ...(rest > 0 || parts.length === 0 ? [`${rest / 1000} s`] : [])].join(" ");
}

/** Checks the pages of each shard and computes its digest while a run is planned (`input.verify: full`). */
interface ShardVerification {
  shard(shard: OpenShard): Promise<string>;
  logSummary(): void;
}

function verifyShards(signal: AbortSignal, log: Log, decoder: Decoder): ShardVerification {
  const seen = { shards: 0, pages: 0, checksums: 0 };
  return {
    async shard(shard) {
      const { pages, checksums } = await decoder.verify(shard, signal);
      seen.shards += 1;
      seen.pages += pages;
      seen.checksums += checksums;
      return await shard.digest(signal);
    },
    logSummary() {
      const without = seen.pages - seen.checksums;
      const rest =
        without === 0 ? "" : `; ${count(without, "page")} without one: only the digest tells of later damage`;
      log.info(`verified ${count(seen.shards, "shard")}: ${count(seen.checksums, "page")} match their checksum${rest}`);
    },
  };
}

/**
 * Wraps the input for `input.verify: full`: before this attempt first uses a shard, its digest must be the planned
 * one. If the plan has no digests, page checksums are checked instead.
 * @param digests by URI, computed while this attempt planned
 */
export function verifyingInput(
  input: Input,
  signal: AbortSignal,
  log: Log,
  { plan, decoder, digests }: { plan: Plan; decoder: Decoder; digests: ReadonlyMap<string, string> },
): Input {
  const planned = new Map(plan.input.shards.map(({ uri, sha256 }) => [uri, sha256]));
  if (plan.input.shards.some(({ sha256 }) => sha256 === undefined)) {
    log.warn(
      "input.verify: full: this run was planned with `pinned`, so its plan holds no digests; page checksums are checked, where the files have them",
    );
  }
  const checks = new Map<string, Promise<void>>();
  const check = async (uri: string, shard: OpenShard): Promise<void> => {
    const due = planned.get(uri);
    if (due === undefined) {
      await decoder.verify(shard, signal);
      return;
    }
    const found = digests.get(uri) ?? (await shard.digest(signal));
    if (found !== due) {
      throw new JobError("INPUT_CHANGED", `reading ${shard.name}: its sha256 is ${found}, planned ${due}`, {
        hint: "its bytes changed though its size and time did not: restore the planned file; committed spans are kept",
      });
    }
  };
  const open = async (shard: ListedShard): Promise<OpenShard> => {
    const file = await input.source.open(shard);
    const checked = checks.get(shard.uri) ?? check(shard.uri, file);
    checks.set(shard.uri, checked);
    try {
      await checked;
      return file;
    } catch (error) {
      await file[Symbol.asyncDispose]();
      throw error;
    }
  };
  return { ...input, source: { ...input.source, open } };
}
