import { isSameShard } from "../../plan/compare.js";
import { JobError } from "../../util/errors.js";
import { showDuration } from "../../report/report.js";
import type { Listing } from "../../storage/port.js";
import type { JobContext } from "../../scoring/context.js";
import { awaitInput, laterInputHint, listInput, requireWhole, wholeInput } from "./input.js";

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
        const { code, message, hint } = why;
        const waited = waitSeconds === 0 ? "" : ` (waited ${showDuration(waitSeconds)})`;
        throw new JobError(code, `${message}${waited}`, {
          cause: why,
          ...(hint === undefined ? {} : { hint }),
        });
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
