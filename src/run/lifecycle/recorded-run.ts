import { runParam } from "../../job/jobfile/job-spec.js";
import { splitRunId } from "../plan/identity.js";
import type { Plan, RunId } from "../plan/plan.js";
import { type Decision, decisionText, type RunState, type RunVerdict, stateOf } from "./lifecycle.js";
import { logicalDateOf } from "./published-run.js";
import type { Pruning } from "./pruned-run.js";
import { resultLines } from "./verdict-text.js";
import { z } from "../../base/zod.js";

/** `abandoned`: a later run was opened before it was complete. `pruned`: its output was removed. */
export type RunStatus = RunState["kind"] | "failed" | "abandoned" | "damaged" | "pruned";

export interface RecordedRun {
  readonly runId: RunId;
  /** The folder or table of its rows. */
  readonly place: string;
  readonly status: RunStatus;
  /** undefined: it is gone or unreadable. */
  readonly plan: Plan | undefined;
  /** Predictions; null: they are not counted before the run is complete. */
  readonly rows: number | null;
  readonly rejected: number | null;
  readonly spansCommitted: number | null;
  /** When the run got its status, ISO 8601; null: it is not known. */
  readonly at: string | null;
  /** How long the run was scored; null: it is not known. */
  readonly seconds: number | null;
  readonly verdict: RunVerdict | undefined;
  readonly decision: Decision | undefined;
  /** The last failure of an attempt, of a run that is not published. */
  readonly failure: AttemptFailure | undefined;
  /** What its answers cost, as far as attempts have told; absent: they are free, or no attempt has. */
  readonly spending?: RecordedSpending | undefined;
  /** What took its committed rows out of the target, so that it cannot be finished, as a clause. Default: nothing, or not known. */
  readonly gone?: string | undefined;
  /** Whether a person put back the table that the published run had replaced. */
  readonly rolledBack?: boolean | undefined;
  /** How the run was pruned; absent: it was not. */
  readonly pruned?: Pruning | undefined;
}

/** What all answers of a run cost, as an attempt has reported it: tokens, and the cost where prices are known. */
export interface RecordedSpending {
  readonly answers: number;
  readonly prompt_tokens: number;
  readonly cached_tokens: number;
  readonly completion_tokens: number;
  readonly cost: number | null;
}

const spendingSchema = z.object({
  answers: z.number(),
  prompt_tokens: z.number(),
  cached_tokens: z.number(),
  completion_tokens: z.number(),
  cost: z.number().nullable().catch(null),
}) satisfies z.ZodType<RecordedSpending>;

/** Reads what was stored of a run's spending; undefined: it is something else. */
export function parseSpending(json: unknown): RecordedSpending | undefined {
  return spendingSchema.safeParse(json).data;
}

/** What the attempt that finished a run has reported; undefined: nothing was paid for. @param attempt plain JSON */
export function recordedSpending(attempt: Readonly<Record<string, unknown>> | undefined): RecordedSpending | undefined {
  return z.object({ run: spendingSchema }).safeParse(attempt?.["spending"]).data?.run;
}

/** A published run whose place a tombstone takes. */
export function asPruned(run: RecordedRun, pruned: Pruning): RecordedRun {
  return run.status === "published" || run.runId === pruned.plan.runId
    ? { ...run, status: "pruned", at: pruned.at, pruned }
    : run;
}

/** For a superseded run, adds the first check that held it: it has no reason from a person. */
export function decidedText({ decision, verdict }: Pick<RecordedRun, "verdict"> & { decision: Decision }): string {
  const [failed] = decision.kind === "superseded" && verdict !== undefined ? resultLines(verdict, "hold") : [];
  return `${decisionText(decision)}${failed === undefined ? "" : `; was held: ${failed}`}`;
}

/** More runs than any target has. */
export const everyRun = 1_000_000;

export function isInFrontOfReaders({
  status,
  rolledBack = false,
}: Pick<RecordedRun, "status" | "rolledBack">): boolean {
  return status === "published" && !rolledBack;
}

/** Whether attempts can finish a run, or a person can decide on it. */
export function isUnfinished({ status }: Pick<RecordedRun, "status">): boolean {
  return status === "unfinished" || status === "failed" || status === "held" || status === "approved";
}

export interface HistoryRequest {
  readonly job: string;
  /** Only this run of the target's own params. Default: runs of any params. */
  readonly runId?: RunId | undefined;
  /** How many, at most: the latest. */
  readonly last: number;
  /** Only those that attempts can finish, or a person can decide on, of other params than this run's. Default: all. */
  readonly unfinishedBut?: RunId | undefined;
  /** A folder that this user may not read is an error. Default: it is left out. */
  readonly complete?: true | undefined;
  /** Collects other jobs and tables that the target has runs of. Default: not collected. */
  readonly others?: OtherRuns | undefined;
}

/** Runs that a history leaves out. */
export interface OtherRuns {
  /** Other jobs with runs in the same folders, or for the same table. */
  readonly jobs: Set<string>;
  /** Other tables of the job's runs, the latest first, each with the params of its latest run; a bounded number. */
  readonly tables: Map<string, Readonly<Record<string, string>>>;
}

/** What a target has stored of a planned run. */
export interface StoredRecords extends Omit<RecordedRun, "status" | "plan" | "at"> {
  readonly plan: Plan;
  /** When it was published; null: it is not known. undefined: it was not. */
  readonly publishedAt?: string | null | undefined;
  /** When its last span was committed. Default: it is not known. */
  readonly committedAt?: string | null;
  /** Whether a later run was opened. */
  readonly isOver: boolean;
}

/** The record that this makes. A run has failed if no attempt got further since its last failure. */
export function recordedRun({ publishedAt, committedAt = null, isOver, ...run }: StoredRecords): RecordedRun {
  const { plan, verdict, decision, failure, spansCommitted } = run;
  const isErasure = plan.erasure !== undefined;
  const { kind } = stateOf({ published: publishedAt !== undefined, staged: plan.staged, isErasure, verdict, decision });
  const at = decision?.at ?? (kind === "held" ? verdict?.at : failure?.at) ?? committedAt;
  const status = (): RunStatus => {
    if (isOver && (kind === "unfinished" || kind === "approved")) {
      return "abandoned";
    }
    const hasStopped = failure !== undefined && spansCommitted !== null && failure.spansCommitted >= spansCommitted;
    return kind === "unfinished" && hasStopped ? "failed" : kind;
  };
  return { ...run, status: status(), at: publishedAt === undefined ? at : publishedAt };
}

/** Rows and rejected rows that the checks counted; null without a verdict. */
export function countsOf(verdict: RunVerdict | undefined): Pick<RecordedRun, "rows" | "rejected"> {
  const { rows, rejected } = verdict?.verdict.results.find(({ check }) => check === "rejects")?.numbers ?? {};
  return { rows: typeof rows === "number" ? rows : null, rejected: typeof rejected === "number" ? rejected : null };
}

/** Sorts runs by logical date, those of a chain by its order, the latest first; runs of the same params by number, the last first. */
export function latestFirst(runs: readonly RecordedRun[]): RecordedRun[] {
  const keyed = runs.map((run) => ({
    run,
    date: run.plan === undefined ? "" : (logicalDateOf(run.plan) ?? ""),
    place: run.plan?.input.changes === undefined ? 0 : Number(run.plan.params[runParam]),
    ...splitRunId(run.runId),
  }));
  return keyed
    .toSorted(
      (one, other) =>
        compare(other.date, one.date) ||
        other.place - one.place ||
        compare(one.base, other.base) ||
        other.number - one.number,
    )
    .map(({ run }) => run);
}

export function compare(left: string, right: string): number {
  return left < right ? -1 : left > right ? 1 : 0;
}

export interface AttemptFailure {
  /** ISO 8601, in UTC. */
  readonly at: string;
  readonly writer: string;
  /** The error's name, such as INPUT_CHANGED. */
  readonly code: string;
  readonly message: string;
  readonly spansCommitted: number;
}

const mostNotes = 8;
const longestMessage = 1000;

/** Not too long, and without the character that texts of Postgres cannot hold. */
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

export function withFailure({ errors, begun }: AttemptNotes, failure: AttemptFailure): AttemptNotes {
  const told = { ...failure, message: storedMessage(failure.message) };
  return { errors: [...errors, told].slice(-mostNotes), begun: begun.filter((writer) => writer !== failure.writer) };
}

export function withBegun({ errors, begun }: AttemptNotes, writer: string): AttemptNotes {
  return { errors, begun: [...begun, writer].slice(-mostNotes) };
}

/** The error that an attempt ended with, under its JSON names. */
export function lastErrorFields(failure: AttemptFailure | undefined): Readonly<Record<string, unknown>> | null {
  if (failure === undefined) {
    return null;
  }
  const { at, code, message, writer } = failure;
  return { at, code, message, writer };
}
