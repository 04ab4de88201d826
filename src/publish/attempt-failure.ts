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

/** Failures of a run that a target of files keeps: the latest. */
const mostFailures = 8;
const longestMessage = 1000;

/** A message as it is stored: not too long, and without the character that texts of Postgres cannot hold. */
export function storedMessage(message: string): string {
  const text = message.replaceAll("\u0000", "\u2400");
  return text.length > longestMessage ? `${text.slice(0, longestMessage - 1)}…` : text;
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
});

/** Reads the text of a file of failures, the latest last; empty for another text, or none: they only inform people. */
export function parseFailures(text: string | undefined): readonly AttemptFailure[] {
  return text === undefined ? [] : (schema.safeParse(parseJson(text)).data?.errors ?? []);
}

/** The text of a file that keeps one more failure, and the latest of those before. */
export function failuresText(earlier: readonly AttemptFailure[], failure: AttemptFailure): string {
  const errors = [...earlier, { ...failure, message: storedMessage(failure.message) }].slice(-mostFailures);
  return `${JSON.stringify({ format: "infer-batch-errors", errors }, undefined, 1)}\n`;
}
