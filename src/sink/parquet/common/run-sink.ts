import type { SpanOutput } from "../../../columnar/types.js";
import { stateOf } from "../../../publish/state.js";
import type { Span } from "../../../plan/plan.js";
import type { AttemptJson, CommitOutcome, CommittedBy, RunSink, RunWriter } from "../../port.js";
import { refuseForeign } from "./claim.js";
import { committedParts, type Target } from "./committed-parts.js";
import {
  committedSpansOf,
  type CommittedSpans,
  committedByOf,
  addParts,
  addOwnPart,
  rejectedRows,
} from "./committed-spans.js";
import type { FinishedPart } from "./manifest.js";
import { readRejects } from "./rejects.js";

/** The steps of a run that disks and S3 do differently. */
export interface Publisher {
  /** Runs `work`; errors of the disk or the store are reported with the act, `doing`. */
  readonly guarded: <T>(doing: string, work: () => Promise<T>) => Promise<T>;
  /** Prepares the target for parts. @throws JobError USAGE when several workers would not be safe there */
  readonly prepare: (workers: number) => Promise<void>;
  /** Publishes a span's rejects, then its part; or adopts the part that another attempt has published. */
  readonly commit: (commit: SpanCommit) => Promise<{ outcome: CommitOutcome; part: FinishedPart }>;
  /** Runs `work`, which finishes the run. Throws when another plan is stored, or a later run was opened. */
  readonly finishing: (work: () => Promise<void>) => Promise<void>;
  /** Moves the parts into place, then writes the manifest, then `_SUCCESS`. Each step may be repeated. */
  readonly publish: (run: FinishedRun) => Promise<void>;
  /** Makes a finished run durable: the attempt that wrote `_SUCCESS` may have died before it flushed the name. */
  readonly flushFinish?: () => Promise<void>;
  /** Removes the working files of a finished run. */
  readonly clear: () => Promise<void>;
  /** Removes what attempts of earlier runs have left, or published too late. */
  readonly clearEarlier: () => Promise<void>;
}

export interface SpanCommit {
  readonly span: Span;
  readonly output: SpanOutput;
  readonly maker: Omit<CommittedBy, "batchSize">;
}

export interface FinishedRun {
  /** Parts that this attempt committed or adopted, with their digests. */
  readonly parts: CommittedSpans["own"];
  /** All committed parts, as their labels describe them. */
  readonly committed: CommittedSpans["parts"];
  /** What the attempt that finishes the run did. */
  readonly attempt: AttemptJson | undefined;
}

/** Opens a run of Parquet parts. `writer` names this attempt. @throws JobError OUTPUT_DAMAGED */
export async function openRun(target: Target, publisher: Publisher, writer: string): Promise<RunSink> {
  const { fs, layout, stored } = target;
  const { folder } = layout;
  const { guarded } = publisher;
  const { finished, parts } = await committedParts(target, () => true);
  await (finished ? publisher.flushFinish?.() : undefined);
  const known = committedSpansOf(stored, parts);
  return {
    state: stateOf({ published: finished, staged: false, verdict: undefined, decision: undefined }),
    profile: () => Promise.resolve(undefined),
    verdict: () => Promise.resolve(undefined),
    judge: () => Promise.reject(new Error("not yet")),
    decide: () => Promise.reject(new Error("not yet")),
    committed: known.committed,
    get rejectedRows() {
      return rejectedRows(known);
    },
    get committedBy() {
      return committedByOf(known);
    },
    rejects: () => readRejects(fs, layout, known.parts),
    refresh: () =>
      guarded(`reading ${folder}`, async () => {
        addParts(known, (await committedParts(target, (span) => !known.parts.has(span))).parts);
      }),
    begin: (attempt) =>
      guarded(`preparing ${folder}`, async () => {
        await publisher.prepare(attempt.workers);
        return runWriter(target, publisher, { known, maker: { writer, ...attempt } });
      }),
    tidy: () => tidyUp(publisher),
  };
}

function runWriter(
  target: Target,
  publisher: Publisher,
  { known, maker }: { readonly known: CommittedSpans; readonly maker: SpanCommit["maker"] },
): RunWriter {
  const { layout } = target;
  const { guarded } = publisher;
  return {
    commit: (span, output) =>
      guarded(`writing ${layout.committedPart(span.index)}`, async () => {
        const { outcome, part } = await publisher.commit({ span, output, maker });
        addOwnPart(known, part);
        return outcome;
      }),
    finish: (attempt) => guarded(`finishing ${layout.folder}`, () => finishRun(target, publisher, { known, attempt })),
  };
}

async function finishRun(
  target: Target,
  publisher: Publisher,
  { known, attempt }: { readonly known: CommittedSpans; readonly attempt: AttemptJson | undefined },
): Promise<void> {
  await publisher.finishing(async () => {
    await refuseForeign(target.fs, target.layout);
    // Parts of other attempts are checked again: all that is published now must be whole now.
    const now = await committedParts(target, (span) => !known.own.has(span));
    addParts(known, now.parts);
    if (now.finished) {
      // Another attempt finished the run, and may have died before it cleared up.
      await publisher.flushFinish?.();
      await publisher.clear();
      return;
    }
    await publisher.publish({ parts: known.own, committed: known.parts, attempt });
  });
}

/**
 * Clears up after a finished run. What may not be removed, as in an archive, stays: the run is complete all the same.
 */
async function tidyUp(publisher: Publisher): Promise<void> {
  try {
    await publisher.clear();
    await publisher.clearEarlier();
  } catch {
    // Readers do not see what stays.
  }
}
