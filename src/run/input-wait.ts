import { JobError } from "../util/errors.js";
import { showDuration } from "../report/report.js";
import type { Listing } from "../storage/port.js";
import type { JobContext } from "../scoring/context.js";
import { awaitInput, listInput, requireWhole } from "./input.js";

const firstPauseMs = 1000;
const pauseGrowth = 1.5;
const longestPauseMs = 60_000;
/** A large listing takes long and, in S3, costs money: the next look comes after so many times what the last one took. */
const pausePerLook = 20;
const toldAgainMs = 30 * 60_000;

/** The input of an attempt that plans a run: it waits up to `input.wait` until there is one. */
export interface InputWait {
  /** Whether an input was refused before, and another one is waited for. */
  readonly hasRefused: boolean;
  /**
   * The shards, once `input.ready` is there. With `input.wait` there is at least one, and every path without wildcards.
   * @throws JobError INPUT_NOT_READY when the time is over; the signal's reason
   */
  listing(): Promise<Listing>;
  /**
   * Whether to plan again after this error, which the last listing led to: `input.min_rows`
   * refuses one, and so does a shard that changes meanwhile.
   */
  refuses(error: unknown): boolean;
}

export function inputWait(context: JobContext): InputWait {
  const waitSeconds = context.spec.input.wait;
  if (waitSeconds === undefined) {
    return {
      hasRefused: false,
      async listing() {
        await awaitInput(context);
        const listing = await listInput(context);
        await requireWhole(context, listing);
        return listing;
      },
      refuses: () => false,
    };
  }
  const pauses = createPauses(context, waitSeconds);
  let last: Listing | undefined;
  let refused: Refused | undefined;
  return {
    get hasRefused() {
      return refused !== undefined;
    },
    async listing() {
      if (refused !== undefined) {
        await pauses.pause(refused.error, 0);
      }
      for (;;) {
        const lookedMs = context.nowMs();
        const found = await look(context, refused);
        if (!(found instanceof JobError)) {
          pauses.ends();
          last = found;
          return found;
        }
        await pauses.pause(found, context.nowMs() - lookedMs);
      }
    },
    refuses(error) {
      if (last === undefined || !isNotReady(error)) {
        return false;
      }
      refused = { listing: hasChanged(error) ? undefined : last, error };
      last = undefined;
      return true;
    },
  };
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
async function look(context: JobContext, refused: Refused | undefined): Promise<Listing | JobError> {
  const { path } = context.spec.input;
  let listing: Listing;
  try {
    await awaitInput(context);
    listing = await listInput(context);
    if (refused?.listing !== undefined && isSame(listing, refused.listing)) {
      return refused.error;
    }
    const missing = [...listing.absent, ...listing.missing.map(({ folder }) => `folder ${folder}`)];
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
  return new JobError("INPUT_NOT_READY", `waiting for input: ${found}`, {
    hint: "run the same command again when the input is there, or correct input.path",
  });
}

function isNotReady(error: unknown): error is JobError {
  return error instanceof JobError && error.code === "INPUT_NOT_READY";
}

function isSame({ shards: some }: Listing, { shards: others }: Listing): boolean {
  return (
    some.length === others.length &&
    some.every((shard, index) => {
      const other = others[index];
      return shard.uri === other?.uri && shard.sizeBytes === other.sizeBytes && shard.fingerprint === other.fingerprint;
    })
  );
}

interface Pauses {
  /** @throws JobError when the time is over; the signal's reason */
  pause(why: JobError, lookMs: number): Promise<void>;
  ends(): void;
}

function createPauses({ nowMs, sleep, log, record }: JobContext, waitSeconds: number): Pauses {
  const startedMs = nowMs();
  let nextMs = firstPauseMs;
  const told = { message: "", ms: startedMs };
  const waitedSeconds = (): number => (nowMs() - startedMs) / 1000;
  return {
    async pause(why, lookMs) {
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
      await sleep(Math.min(leftMs, Math.max(nextMs, pausePerLook * lookMs)));
      nextMs = Math.min(longestPauseMs, nextMs * pauseGrowth);
      record.inputWaitSeconds = waitedSeconds();
    },
    ends() {
      if (told.message !== "") {
        log.info(`found the input after ${showDuration(waitedSeconds())}`);
      }
    },
  };
}
