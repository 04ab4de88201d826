import { parseJson } from "../plan/parse-plan.js";
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

/** Failures, and attempts that have begun, that a target of files keeps of a run: the latest. */
const mostNotes = 8;
const longestMessage = 1000;

/** A message as it is stored: not too long, and without the character that texts of Postgres cannot hold. */
export function storedMessage(message: string): string {
  const text = message.replaceAll("\u0000", "\u2400");
  return text.length > longestMessage ? `${text.slice(0, longestMessage - 1)}…` : text;
}

/** What a target of files keeps of a run's attempts: it informs people, and says whether a run may be abandoned. */
export interface AttemptNotes {
  /** The latest last. */
  readonly errors: readonly AttemptFailure[];
  /** Attempts that have begun since there was an error, and have not ended with one. */
  readonly begun: readonly string[];
}

const schema = z.object({
  format: z.literal("infer-batch-errors"),
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

/** Reads the text of a file of notes; empty for another text, or none. */
export function parseNotes(text: string | undefined): AttemptNotes {
  return (text === undefined ? undefined : schema.safeParse(parseJson(text)).data) ?? { errors: [], begun: [] };
}

/** The text of a file that keeps one more failure, and the latest of those before. */
export function failureText({ errors, begun }: AttemptNotes, failure: AttemptFailure): string {
  return notesText({
    errors: [...errors, { ...failure, message: storedMessage(failure.message) }],
    begun: begun.filter((writer) => writer !== failure.writer),
  });
}

/** The text of a file that keeps one more attempt that has begun. */
export function begunText({ errors, begun }: AttemptNotes, writer: string): string {
  return notesText({ errors, begun: [...begun, writer] });
}

function notesText({ errors, begun }: AttemptNotes): string {
  const kept = { errors: errors.slice(-mostNotes), begun: begun.slice(-mostNotes) };
  return `${JSON.stringify({ format: "infer-batch-errors", ...kept }, undefined, 1)}\n`;
}

/** The error that an attempt ended with, under its JSON names. */
export function failureFields(failure: AttemptFailure | undefined): Readonly<Record<string, unknown>> | null {
  if (failure === undefined) {
    return null;
  }
  const { at, code, message, writer } = failure;
  return { at, code, message, writer };
}
