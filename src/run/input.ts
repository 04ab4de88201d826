import { JobError, reworded } from "../base/errors.js";
import { lakeTableError, lakeTables } from "./plan/lake-tables.js";
import type { Listing } from "../sources/source.js";
import { type JobContext, atKey } from "../flow/context.js";
import { isSameShard } from "./plan/compare.js";
import type { Plan } from "./plan/plan.js";
import type { JobSpec } from "../job/jobfile/job-spec.js";
import { showDuration } from "../base/shown-numbers.js";

const inputPath = ["input", "path"];

export const laterInputHint = "run the same command again when the input is there, or correct input.path";
const pathHint = "paths are relative to the spec's folder; input.wait makes a run wait for input that comes later";

/** Folders that are searched for the log of a lakehouse table at once. */
const rootsAtOnce = 8;

async function awaitInput({ spec, source }: JobContext): Promise<void> {
  const { ready } = spec.input;
  if (ready !== undefined && !(await source.exists(ready))) {
    throw new JobError("INPUT_NOT_READY", `waiting for input: ${ready} (input.ready) is not there yet`, {
      hint: "run the same command again later; exit code 75 tells a scheduler to retry",
    });
  }
}

/** @param plan of the run that reads it; undefined: it is still to be planned */
export async function listInput(context: JobContext, plan?: Plan): Promise<Listing> {
  const { source, spec } = context;
  const { on_rewrite: onRewrite = "fail" } = spec.input;
  const wanted = plan?.input ?? {
    changes: context.chain && { from: context.chain.from, to: context.chain.to, onRewrite },
  };
  const listing = await atKey(context, inputKey(context), () => source.list(spec.input.path, wanted));
  return plan === undefined ? listing : plannedFiles(listing, plan);
}

/** Of a version of a table, the files that its plan has: those of which `input.where` keeps no row are left out of it. */
export function plannedFiles(listing: Listing, { input: { table, shards } }: Plan): Listing {
  const planned = new Set(shards.map(({ uri }) => uri));
  return table === undefined ? listing : { ...listing, shards: listing.shards.filter(({ uri }) => planned.has(uri)) };
}

/** The input of the plan that counts: another attempt may have planned another version of a table. */
export async function listPlanned(context: JobContext, plan: Plan, listing: Listing): Promise<Listing> {
  const [planned, listed] = [plan.input.table, listing.table];
  const isSameVersion =
    planned?.version === listed?.version &&
    planned?.schemaId === listed?.schemaId &&
    plan.input.changes?.from === listing.changes?.from;
  return isSameVersion ? plannedFiles(listing, plan) : await listInput(context, plan);
}

/** The input of a run that is published: files of a table may be gone by then, and nothing is added to a version. */
export async function listPublished(context: JobContext, { input: { table, shards } }: Plan): Promise<Listing> {
  return table === undefined ? await listInput(context) : { ...(await context.source.list([])), table, shards };
}

function inputKey({ spec }: Pick<JobContext, "spec">): readonly string[] {
  return spec.input.table === undefined ? inputPath : ["input", "table"];
}

/** The job's input as it is now, all of it. @throws JobError as `awaitInput`, `listInput` and `requireWhole` */
export async function wholeInput(context: JobContext): Promise<Listing> {
  await awaitInput(context);
  const listing = await listInput(context);
  await requireWhole(context, listing);
  return listing;
}

/**
 * Refuses a listing that lacks rows that `input.path` names, or has rows that do not count. Only planning calls it:
 * from then on the plan names the input.
 * @throws JobError FILE_MISSING, SPEC_INVALID, INPUT_NOT_READY
 */
export async function requireWhole(context: JobContext, listing: Listing): Promise<void> {
  requireListed(context, listing);
  requireFolders(context, listing);
  await atKey(context, inputPath, () => refuseLakeTables(context, listing));
  refuseUncommitted(context, listing);
}

export function warnOfUnmatched({ log }: Pick<JobContext, "log">, { shards, unmatched }: Listing): void {
  if (shards.length > 0 && unmatched.length > 0) {
    log.warn(`no file matches ${unmatched.join(", ")}; other patterns of input.path have some`);
  }
}

/**
 * Refuses a listing that lacks a named file or has a match that cannot be read.
 * @throws JobError FILE_MISSING for a path without wildcards that does not exist, SPEC_INVALID for a match that is no
 * file
 */
export function requireListed({ where }: JobContext, { missingFiles, unreadable: [unread, ...others] }: Listing): void {
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

/**
 * Refuses a missing folder: temporary if its parent exists, as for a day that is still to come; else the path is wrong.
 */
function requireFolders({ spec, where }: JobContext, { missingFolders }: Listing): void {
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
function refuseUncommitted({ spec }: JobContext, { shards }: Listing): void {
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

/** Refuses files of a lakehouse table, not all of which are current. @throws JobError SPEC_INVALID */
async function refuseLakeTables({ source }: JobContext, { tableRoots }: Listing): Promise<void> {
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
export async function withInput<T>(context: JobContext, work: (listing: Listing) => Promise<T>): Promise<T> {
  const waitSeconds = context.spec.input.wait;
  if (waitSeconds === undefined) {
    return await work(await wholeInput(context));
  }
  const pauses = createPauses(context, waitSeconds);
  let refused: Refused | undefined;
  for (;;) {
    const startedMs = context.nowMs();
    const found = await listWhenReady(context, refused);
    if (found instanceof JobError) {
      await pauses.pause(found, context.nowMs() - startedMs);
      continue;
    }
    pauses.end();
    try {
      return await work(found);
    } catch (error) {
      if (!isNotReady(error)) {
        throw error;
      }
      refused = { listing: hasChanged(error) ? undefined : found, error };
      await pauses.pause(error, 0);
    }
  }
}

/** Whether a shard was written to while the run was planned; the same listing may be planned then. */
function hasChanged({ cause }: JobError): boolean {
  return cause instanceof JobError && cause.code === "INPUT_CHANGED";
}

interface Refused {
  /** This listing is refused until it changes; undefined: it may be tried again. */
  readonly listing: Listing | undefined;
  readonly error: JobError;
}

/** Returns the listing, or the reason why the input is not ready. */
async function listWhenReady(context: JobContext, refused: Refused | undefined): Promise<Listing | JobError> {
  let listing: Listing;
  try {
    await awaitInput(context);
    listing = await listInput(context);
    if (refused?.listing !== undefined && isSame(listing, refused.listing)) {
      return refused.error;
    }
    const missing = [...listing.missingFiles, ...listing.missingFolders.map(({ folder }) => `folder ${folder}`)];
    if (missing.length > 0) {
      return notThere(`there is no ${missing.join(", ")}`);
    }
    await requireWhole(context, listing);
  } catch (error) {
    if (isNotReady(error)) {
      return error;
    }
    throw error;
  }
  if (listing.shards.length === 0) {
    return notThere(noShards(context.spec));
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
  /** Logs that the input is ready, if there was a pause. */
  end(): void;
}

function createPauses({ nowMs, sleep, log, record }: JobContext, waitSeconds: number): Pauses {
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
