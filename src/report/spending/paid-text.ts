import { count, showCount, spentText } from "../report.js";
import { spentFields, type SpentReport } from "./spending-report.js";

/** What an unfinished run has paid for and asked for so far. */
export interface PaidReport {
  /** Answers that attempts have kept, or why they are not known. */
  readonly kept: SpentReport | string;
  /** The batches of the run that the server has, or why they are not known; undefined: rows are asked one by one. */
  readonly batches: readonly BatchReport[] | string | undefined;
}

/** A batch at the server. */
export interface BatchReport {
  readonly id: string;
  /** As the server names it, such as `in_progress`. */
  readonly status: string;
  readonly requests: number;
  /** Requests with an answer. */
  readonly answered: number;
  readonly hasEnded: boolean;
}

/** Batches that have not ended, of which so many are named. */
const namedBatches = 3;

/** What an unfinished run has paid for and asked for, in lines for people. */
export function paidLines({ kept, batches }: PaidReport): string[] {
  const known = `kept     ${typeof kept === "string" ? `unknown: ${kept}` : spentText(kept)}`;
  if (batches === undefined) {
    return [known];
  }
  return [known, `batches  ${typeof batches === "string" ? `unknown: ${batches}` : batchesText(batches)}`];
}

function batchesText(batches: readonly BatchReport[]): string {
  const running = batches.filter(({ hasEnded }) => !hasEnded);
  const named = running
    .slice(0, namedBatches)
    .map(({ id, status, requests, answered }) => `${id} (${status}, ${showCount(answered)} of ${showCount(requests)})`);
  const more = running.length > namedBatches ? [`${showCount(running.length - namedBatches)} more`] : [];
  const ends = running.length === 0 ? "none under way" : `under way: ${[...named, ...more].join(", ")}`;
  return batches.length === 0
    ? "none at the server"
    : `${showCount(batches.length)} sent with ${count(sumOf(batches, "requests"), "request")}, ${showCount(sumOf(batches, "answered"))} answered; ${ends}`;
}

function sumOf(batches: readonly BatchReport[], key: "requests" | "answered"): number {
  return batches.reduce((sum, batch) => sum + batch[key], 0);
}

/** The same under its JSON names. */
export function paidFields({ kept, batches }: PaidReport): object {
  return {
    ...(typeof kept === "string" ? { kept: null, kept_error: kept } : { kept: spentFields(kept) }),
    ...(typeof batches === "string" ? { batches_error: batches } : {}),
    ...(typeof batches === "object"
      ? { batches: batches.map(({ id, status, requests, answered }) => ({ id, status, requests, answered })) }
      : {}),
  };
}
