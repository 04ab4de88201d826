import type { SpanOutput } from "../../../columnar/types.js";
import type { Span } from "../../../plan/plan.js";
import type { AttemptJson, CommitOutcome, Maker, RunSink, RunWriter } from "../../port.js";
import { refuseForeign } from "./claim.js";
import { lookAt, type Target } from "./committed-parts.js";
import { knownOf, type Known, makersOf, note, noteOwn, rejectedRows } from "./known-parts.js";
import type { FinishedPart } from "./manifest.js";
import { readRejects } from "./rejects.js";

/** What a disk and S3 do in their own ways for the run at a target. */
export interface Publisher {
  /** Runs `work`; an error of the disk or the store is told with what was being done. */
  readonly telling: <T>(doing: string, work: () => Promise<T>) => Promise<T>;
  /** Makes the target ready for parts. @throws JobError USAGE when several workers would not be safe there */
  readonly prepare: (workers: number) => Promise<void>;
  /** Publishes a span's part, its rejects first, or adopts the part that another attempt has published. */
  readonly commit: (commit: SpanCommit) => Promise<{ outcome: CommitOutcome; part: FinishedPart }>;
  /** Runs `work`, which finishes the run; throws when another plan is stored, or a later run came. */
  readonly finishing: (work: () => Promise<void>) => Promise<void>;
  /** Puts the parts in place, then writes the manifest, then `_SUCCESS`. Each step may be repeated. */
  readonly publish: (run: FinishedRun) => Promise<void>;
  /** Makes durable that the run is finished: the attempt that wrote `_SUCCESS` may have died before it did. */
  readonly settle?: () => Promise<void>;
  /** Removes the files that attempts worked with, once the run is finished. */
  readonly clear: () => Promise<void>;
  /** Removes what attempts of the runs before this one have left or published too late. */
  readonly clearEarlier: () => Promise<void>;
}

export interface SpanCommit {
  readonly span: Span;
  readonly output: SpanOutput;
  readonly maker: Omit<Maker, "batchSize">;
}

export interface FinishedRun {
  /** Parts of this attempt, whose digests it knows. */
  readonly parts: Known["own"];
  /** All parts, as their labels tell. */
  readonly committed: Known["parts"];
  /** What the attempt that finishes the run did. */
  readonly attempt: AttemptJson | undefined;
}

/** Opens a run of Parquet parts. `writer` names this attempt. @throws JobError OUTPUT_DAMAGED */
export async function openRun(target: Target, publisher: Publisher, writer: string): Promise<RunSink> {
  const { fs, layout, stored } = target;
  const { folder } = layout;
  const { telling } = publisher;
  const { finished, parts } = await lookAt(target, () => true);
  await (finished ? publisher.settle?.() : undefined);
  const known = knownOf(stored, parts);
  return {
    finished,
    committed: known.committed,
    get rejectedRows() {
      return rejectedRows(known);
    },
    get makers() {
      return makersOf(known);
    },
    rejects: () => readRejects(fs, layout, known.parts),
    refresh: () =>
      telling(`looking at ${folder}`, async () => {
        note(known, (await lookAt(target, (span) => !known.parts.has(span))).parts);
      }),
    begin: (attempt) =>
      telling(`preparing ${folder}`, async () => {
        await publisher.prepare(attempt.workers);
        return runWriter(target, publisher, { known, maker: { writer, ...attempt } });
      }),
    tidy: () => tidyUp(publisher),
  };
}

function runWriter(
  target: Target,
  publisher: Publisher,
  { known, maker }: { readonly known: Known; readonly maker: SpanCommit["maker"] },
): RunWriter {
  const { layout } = target;
  const { telling } = publisher;
  return {
    commit: (span, output) =>
      telling(`writing ${layout.committedPart(span.index)}`, async () => {
        const { outcome, part } = await publisher.commit({ span, output, maker });
        noteOwn(known, part);
        return outcome;
      }),
    finish: (attempt) => telling(`finishing ${layout.folder}`, () => finishRun(target, publisher, { known, attempt })),
  };
}

async function finishRun(
  target: Target,
  publisher: Publisher,
  { known, attempt }: { readonly known: Known; readonly attempt: AttemptJson | undefined },
): Promise<void> {
  await publisher.finishing(async () => {
    await refuseForeign(target.fs, target.layout);
    // Those of others are checked again: what is published now must be whole now.
    const now = await lookAt(target, (span) => !known.own.has(span));
    note(known, now.parts);
    if (now.finished) {
      // Another attempt did, and may have died before it cleared up.
      await publisher.settle?.();
      await publisher.clear();
      return;
    }
    await publisher.publish({ parts: known.own, committed: known.parts, attempt });
  });
}

/** A run is complete whatever may not be removed, as in an archive. */
async function tidyUp(publisher: Publisher): Promise<void> {
  try {
    await publisher.clear();
    await publisher.clearEarlier();
  } catch {
    // Readers do not see it.
  }
}
