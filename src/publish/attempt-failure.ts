import { z } from "../util/zod.js";

/** The error that an attempt at a run ended with, as the target keeps it for people. */
export interface AttemptFailure {
  /** ISO 8601, in UTC. */
  readonly at: string;
  /** Names the attempt. */
  readonly writer: string;
  /** The error's name, such as INPUT_CHANGED. */
  readonly code: string;
  readonly message: string;
  /** Committed spans of the run at that time; more of them now are the work of later attempts. */
  readonly spansCommitted: number;
}

/** Failures, and attempts that have begun, that are kept of a run: the latest. */
const mostNotes = 8;
const longestMessage = 1000;

/** A message as it is stored: not too long, and without the character that texts of Postgres cannot hold. */
function storedMessage(message: string): string {
  const text = message.replaceAll("\u0000", "\u2400");
  return text.length > longestMessage ? `${text.slice(0, longestMessage - 1)}…` : text;
}

/** What a target keeps of a run's attempts: it informs people, and says whether a run may be abandoned. */
export interface AttemptNotes {
  /** The latest last. */
  readonly errors: readonly AttemptFailure[];
  /** Attempts that have begun since there was an error, and have not ended with one. */
  readonly begun: readonly string[];
}

const schema = z.object({
  errors: z.array(
    z.object({
      at: z.string(),
      writer: z.string(),
      code: z.string(),
      message: z.string(),
      spansCommitted: z.int(),
    }),
  ),
  begun: z.array(z.string()).default([]),
});

/** Reads stored notes; empty for anything else. */
export function parseNotes(json: unknown): AttemptNotes {
  return schema.safeParse(json).data ?? { errors: [], begun: [] };
}

/** Adds a failure to what is known, of which the latest stay. */
export function withFailure({ errors, begun }: AttemptNotes, failure: AttemptFailure): AttemptNotes {
  const told = { ...failure, message: storedMessage(failure.message) };
  return { errors: [...errors, told].slice(-mostNotes), begun: begun.filter((writer) => writer !== failure.writer) };
}

/** Adds an attempt that has begun. */
export function withBegun({ errors, begun }: AttemptNotes, writer: string): AttemptNotes {
  return { errors, begun: [...begun, writer].slice(-mostNotes) };
}

/** The error that an attempt ended with, under its JSON names. */
export function failureFields(failure: AttemptFailure | undefined): Readonly<Record<string, unknown>> | null {
  if (failure === undefined) {
    return null;
  }
  const { at, code, message, writer } = failure;
  return { at, code, message, writer };
}
