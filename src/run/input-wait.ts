import { isSameShard } from "../plan/compare.js";
import { JobError } from "../util/errors.js";
import { showDuration } from "../report/report.js";
import type { Listing } from "../storage/port.js";
import type { JobContext } from "../scoring/context.js";
import { awaitInput, laterInputHint, listInput, requireWhole, wholeInput } from "./input.js";

const firstPauseMs = 1000;
const pauseGrowth = 1.5;
const longestPauseMs = 60_000;
/** A large listing takes long and, in S3, costs money: the next one comes after so many times what the last one took. */
const pausePerListing = 20;
const toldAgainMs = 30 * 60_000;

/**
 * Calls `work` with the listing of the input, as soon as there is one: with `input.wait` it waits until `input.ready` is
 * there, and then until there is at least one shard, and every path without wildcards. Where `work` finds that the input
 * is not ready (`input.min_rows`, a shard that changes meanwhile), it is called again with another listing.
 * @throws JobError INPUT_NOT_READY when the time is over; the signal's reason; what `work` throws
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

/** A shard was written to while the run was planned: what is there now may be planned. */
function hasChanged({ cause }: JobError): boolean {
  return cause instanceof JobError && cause.code === "INPUT_CHANGED";
}

interface Refused {
  /** The listing that is refused as long as it stays the same; undefined: another try may take it. */
  readonly listing: Listing | undefined;
  readonly error: JobError;
}

/** The listing, or why there is none yet. */
async function listWhenReady(context: JobContext, refused: Refused | undefined): Promise<Listing | JobError> {
  const { path } = context.spec.input;
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
    return notThere(`no file matches ${path.join(", ")}`);
  }
  return listing;
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
  /** The input is there. */
  end(): void;
}

function createPauses({ nowMs, sleep, log, record }: JobContext, waitSeconds: number): Pauses {
  const startedMs = nowMs();
  let nextMs = firstPauseMs;
  const told = { message: "", ms: startedMs };
  const waitedSeconds = (): number => (nowMs() - startedMs) / 1000;
  return {
    async pause(why, listingMs) {
      const leftMs = waitSeconds * 1000 - (nowMs() - startedMs);
      if (leftMs <= 0) {
        const { code, message, hint } = why;
        throw new JobError(code, `${message} (waited ${showDuration(waitSeconds)})`, {
          cause: why,
          ...(hint === undefined ? {} : { hint }),
        });
      }
      if (why.message !== told.message || nowMs() - told.ms >= toldAgainMs) {
        const left = showDuration(leftMs / 1000);
        log.info(`${why.message}; looking again for up to ${left} (input.wait)`);
        told.message = why.message;
        told.ms = nowMs();
      }
      await sleep(Math.min(leftMs, Math.max(nextMs, pausePerListing * listingMs)));
      nextMs = Math.min(longestPauseMs, nextMs * pauseGrowth);
      record.inputWaitSeconds = waitedSeconds();
    },
    end() {
      if (told.message !== "") {
        log.info(`found the input after ${showDuration(waitedSeconds())}`);
      }
    },
  };
}
