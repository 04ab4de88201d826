import { deflateRawSync, inflateRawSync } from "node:zlib";
import { numberedRunId, splitRunId } from "../run/plan/identity.js";
import type { Plan, RunId } from "../run/plan/plan.js";
import { type AttemptNotes, type RecordedSpending, parseNotes, parseSpending } from "../run/lifecycle/recorded-run.js";
import {
  type Decision,
  type RunState,
  type RunVerdict,
  parseDecision,
  parseRunVerdict,
  stateOf,
} from "../run/lifecycle/lifecycle.js";
import { type RunComparison, parseRunComparison, verdictWithoutRows, withoutRows } from "../run/lifecycle/erasure.js";
import { z } from "../base/zod.js";

/** The documents of runs at a target: a file for each in a store, a row for each in a table. */
export interface Ledger {
  /** Reads a document; undefined: there is none. Safe to repeat. @throws JobError OUTPUT_DAMAGED for one that was changed by others */
  read<T>(runId: RunId, kind: DocumentKind<T>): Promise<T | undefined>;
  /**
   * Creates a document unless there is one, durably. Returns the stored one, which is the first writer's. Safe to repeat.
   * @param run the id of one for a note: it need not be planned, or may be over. Else a planned one, of which a verdict and
   * a comparison are created when all spans are committed, and a decision if it is staged
   * @throws JobError of a planned run PLAN_CHANGED if it was superseded, DISCARDED; for an approval what would keep the run
   * from being published, as far as that is known before
   */
  create<T extends Note | RunVerdict | RunComparison | Decision>(
    run: RunId | PlannedRun,
    kind: DocumentKind<T>,
    value: T,
  ): Promise<T>;
  /**
   * Changes a document on which no decision depends; where rows are in files, a verdict and a comparison too. A change that comes at the
   * same moment may be lost, and so is one of a run that is not planned. Safe to repeat where `next` is.
   * @param next the new document for the known one; undefined: it stays
   * @param stop ends it, where it would take too long
   */
  change<T>(
    runId: RunId,
    kind: DocumentKind<T>,
    next: (known: T | undefined) => T | undefined,
    stop?: AbortSignal,
  ): Promise<void>;
  /** Removes a note. Safe to repeat. @throws JobError PERMISSION where this user may not */
  remove(runId: RunId, note: DocumentKind<Note>): Promise<void>;
}

export interface PlannedRun {
  readonly plan: Plan;
  /** Hex sha256 of the plan's text. Every part names its plan by it. */
  readonly planId: string;
}

/** What a document is: plain JSON. */
export interface DocumentKind<T> {
  /** Of its file, and of its rows. */
  readonly name: "verdict" | "comparison" | "decision" | "errors" | "spending" | "passed" | RunNote;
  /** undefined: this program has not written it. */
  readonly parse: (json: unknown) => T | undefined;
}

/** The verdict on a run whose spans are all committed. Created once. */
export const verdictDocument: DocumentKind<RunVerdict> = { name: "verdict", parse: parseRunVerdict };

/** How a second model agrees on a run whose spans are all committed. Created once, before the verdict. */
export const comparisonDocument: DocumentKind<RunComparison> = { name: "comparison", parse: parseRunComparison };

/** The decision on a staged run. Created once. */
export const decisionDocument: DocumentKind<Decision> = { name: "decision", parse: parseDecision };

/** The latest errors of attempts. */
export const errorsDocument: DocumentKind<AttemptNotes> = { name: "errors", parse: parseNotes };

/** What the run has paid for, as the attempt that knows of most answers has told. It informs people: what cannot be read is nothing. */
export const spendingDocument: DocumentKind<RecordedSpending> = {
  name: "spending",
  parse: (json) =>
    parseSpending(json) ?? { answers: 0, prompt_tokens: 0, cached_tokens: 0, completion_tokens: 0, cost: null },
};

/**
 * What is noted of a run once: that it is `late`; that `report.on_late` was called (`late_told`); that `report.on_held`
 * was called, so that a person was `told`; what a run of a chain reads (`range`), and what is known of its day (`day`).
 */
export type RunNote = "late" | "late_told" | "told" | "range" | "day";

/** A note, and the attempt that has made it. */
export interface Note {
  /** ISO 8601, in UTC. */
  readonly at: string;
  readonly writer: string;
  readonly text: string;
}

const noteSchema = z.object({ at: z.string(), writer: z.string(), text: z.string() });

export function noteDocument(name: RunNote): DocumentKind<Note> {
  // A note that cannot be read is there anyway.
  const unreadable = { at: new Date(0).toISOString(), writer: "", text: "" };
  return { name, parse: (json) => noteSchema.safeParse(json).data ?? unreadable };
}

/** A long text as a note has it: of a profile, a third of its bytes. */
export function packText(text: string): string {
  return deflateRawSync(text).toString("base64");
}

/** Reads what `packText` made; empty where it is damaged. */
export function unpackText(packed: string): string {
  try {
    return inflateRawSync(Buffer.from(packed, "base64")).toString();
  } catch {
    return "";
  }
}

/** An answer that was paid for, kept before the span of its row is committed. */
export interface LoggedAnswer {
  /** Hex SHA-256 of the whole request as it was sent, without headers. */
  readonly request: string;
  /** The answer as JSON text: the parts that are needed (content, finish reason, usage, model), never the prompt. */
  readonly answer: string;
}

/** The answers of a run that its attempts have kept at the target. A cache: losing it costs money, never rows. */
export interface AnswerJournal {
  /** How long an answer waits for others before it is written, in milliseconds, unless the spec says otherwise: longer where a write is dear. */
  readonly pauseMs: number;
  /**
   * Yields all answers that attempts of this run have kept, of all workers. If several attempts have paid for the same
   * request, all of their answers. Damaged records are left out.
   */
  read(): AsyncIterable<LoggedAnswer>;
  /**
   * Makes answers durable; resolves when they are. Calls never overlap. Called with none before anything is paid for: a
   * target that cannot keep answers says so then. @throws JobError DISK, OBJECT_STORE, DATABASE; PLAN_CHANGED, DISCARDED
   */
  keep(answers: readonly LoggedAnswer[]): Promise<void>;
}

/** Bytes of answers that are written, and read, at once. */
const answersBytes = 4 * 1024 ** 2;

/** Divides answers into groups of a bounded size, of one answer at least. */
export function* answerGroups(answers: readonly LoggedAnswer[]): Generator<readonly LoggedAnswer[]> {
  let group: LoggedAnswer[] = [];
  let bytes = 0;
  for (const kept of answers) {
    const more = Buffer.byteLength(kept.answer);
    if (group.length > 0 && bytes + more > answersBytes) {
      yield group;
      group = [];
      bytes = 0;
    }
    group.push(kept);
    bytes += more;
  }
  if (group.length > 0) {
    yield group;
  }
}

/** Reads the state of a run that is published, or not. @param read reads a document of it */
export async function readState(
  { staged, erasure }: Plan,
  published: boolean,
  read: <T>(kind: DocumentKind<T>) => Promise<T | undefined>,
): Promise<RunState> {
  const isOpen = staged && !published;
  return stateOf({
    published,
    staged,
    isErasure: erasure !== undefined,
    verdict: isOpen ? await read(verdictDocument) : undefined,
    decision: isOpen ? await read(decisionDocument) : undefined,
  });
}

/**
 * Removes what the verdicts on a run and on those before it, their comparisons and their errors say of single rows. For
 * runs whose rows are in files. Safe to repeat.
 */
export async function stripRows(ledger: Ledger, latest: RunId): Promise<void> {
  const { base, number } = splitRunId(latest);
  for (let earlier = 1; earlier <= number; earlier += 1) {
    const runId = numberedRunId(base, earlier);
    await ledger.change(runId, verdictDocument, (verdict) => verdict && verdictWithoutRows(verdict));
    await ledger.change(runId, comparisonDocument, (result) => result && withoutRows(result));
    await ledger.change(runId, errorsDocument, (notes) => notes && { ...notes, errors: [] });
  }
}
