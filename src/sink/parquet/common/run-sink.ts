import type { SpanOutput } from "../../../columnar/types.js";
import { runProfileOf, runProfileText } from "../../../publish/profile-text.js";
import { requireApproved } from "../../../publish/require-approved.js";
import { JobError } from "../../../util/errors.js";
import type { Span } from "../../../plan/plan.js";
import type { AttemptJson, CommitOutcome, RunSink, RunWriter } from "../../port.js";
import type { CommittedBy } from "../../../publish/committed-by.js";
import { type AnswerFiles, openAnswerFiles, readAnswers } from "./answers/journal.js";
import type { SpilledPiece } from "./commit.js";
import { createSpilledPieces, type SpillTarget } from "./spilled-pieces.js";
import { refuseForeign } from "./claim.js";
import { committedParts, readCommitted, type Target } from "./committed-parts.js";
import {
  committedSpansOf,
  type CommittedSpans,
  committedByOf,
  addParts,
  addOwnPart,
  addOwnProfile,
  filteredRows,
  outputRows,
  rejectedRows,
} from "./committed-spans.js";
import {
  controlText,
  type ProfileToWrite,
  profileToWrite,
  readDecision,
  readState,
  readVerdict,
} from "./control-files.js";
import { attemptNotes, type NotesTarget } from "./failures.js";
import { countKeysIn, type OpenKeyDuckDb } from "./key-counts.js";
import { readSpanFiles } from "./erasing/span-files.js";
import type { FinishedPart } from "./manifest.js";
import { listParts } from "./parts.js";
import { readRejects } from "./rejects.js";
import { runNotes } from "./run-notes.js";
import { committedProfile } from "./run-profile.js";

/** The steps of a run that disks and S3 do differently. */
export interface Publisher extends NotesTarget {
  /** Creates a file unless it exists. It is durable when this returns, even if another attempt created it. */
  readonly createOnce: (path: string, text: string) => Promise<void>;
  /** Prepares the target for parts. @throws JobError USAGE when several workers would not be safe there */
  readonly prepare: (workers: number) => Promise<void>;
  /** How answers are kept. */
  readonly answers: AnswerFiles;
  /** Where rows of incomplete spans are written. */
  readonly spill: SpillTarget;
  /** Opens a DuckDB that reads the files which `localParts` yields. */
  readonly openKeyDuckDb: OpenKeyDuckDb;
  /** Yields parts as files on this machine, a group at a time. A group is available until the next one is requested. */
  readonly localParts: (paths: readonly string[]) => AsyncIterable<readonly string[]>;
  /** The folder of the files that `localParts` yields. */
  readonly partsFolder: string;
  /** Publishes a span's rejects, then its part; or adopts the part that another attempt has published. */
  readonly commit: (commit: SpanCommit) => Promise<{ outcome: CommitOutcome; part: FinishedPart }>;
  /** Runs `work`, which finishes the run. Throws when another plan is stored, or a later run was opened. */
  readonly finishing: (work: () => Promise<void>) => Promise<void>;
  /**
   * Moves the parts into place, then writes the profile, then the manifest, then `_SUCCESS`. Each step may be repeated.
   */
  readonly publish: (run: FinishedRun) => Promise<void>;
  /** Makes a finished run durable: the attempt that wrote `_SUCCESS` may have died before it flushed the name. */
  readonly flushFinish?: () => Promise<void>;
  /** Removes the working files of a finished run. */
  readonly clear: () => Promise<void>;
  /**
   * Removes what attempts of earlier runs have left, or published too late.
   * @param isPublished whether this run is published; until then, readers read the parts of an earlier run
   */
  readonly clearEarlier: (isPublished: boolean) => Promise<void>;
}

export interface SpanCommit {
  readonly span: Span;
  readonly output: SpanOutput;
  readonly maker: Omit<CommittedBy, "batchSize">;
  /** Rows of the span that were encoded before it was complete, in order. */
  readonly spilled: readonly SpilledPiece[];
}

export interface FinishedRun {
  /** Parts that this attempt committed or adopted, with their digests. */
  readonly parts: CommittedSpans["own"];
  /** All committed parts, as their labels describe them. */
  readonly committed: CommittedSpans["parts"];
  readonly profile: ProfileToWrite;
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
    state: await guarded(`reading ${folder}`, () => readState(fs, layout, { plan: stored.plan, published: finished })),
    ...reviewOf(target, publisher, known),
    committed: known.committed,
    get rejectedRows() {
      return rejectedRows(known);
    },
    get filteredRows() {
      return filteredRows(known);
    },
    get outputRows() {
      return outputRows(stored.plan, known);
    },
    get committedBy() {
      return committedByOf(known);
    },
    parts: () => ({ folder: publisher.partsFolder, groups: partsOf(target, publisher) }),
    spanFiles: (isWanted) => readSpanFiles(target, known.parts, { localParts: publisher.localParts, isWanted }),
    rejects: () => readRejects(fs, layout, known.parts),
    keptAnswers: () => readAnswers({ fs, layout, files: publisher.answers, guarded }),
    refresh: () =>
      guarded(`reading ${folder}`, async () => {
        addParts(known, (await committedParts(target, (span) => !known.parts.has(span))).parts);
      }),
    begin: (attempt) =>
      guarded(`preparing ${folder}`, async () => {
        await publisher.prepare(attempt.workers);
        return runWriter(target, publisher, { known, maker: { writer, ...attempt } });
      }),
    tidy: () => tidyUp(publisher, finished),
    notes: runNotes(target, publisher, writer),
    ...attemptNotes(target, publisher, { writer, committed: known.committed }),
  };
}

async function* partsOf({ fs, layout }: Target, { localParts }: Publisher): AsyncGenerator<readonly string[]> {
  const paths = await listParts(fs, layout);
  yield* localParts([...paths.values()]);
}

/** The profile of a run, the verdict on it, and the decision. */
function reviewOf(
  target: Target,
  { guarded, createOnce, openKeyDuckDb, localParts }: Publisher,
  known: CommittedSpans,
): Pick<RunSink, "profile" | "countKeys" | "verdict" | "judge" | "decide" | "decision"> {
  const { fs, layout } = target;
  const { runId } = layout;
  return {
    profile: () => guarded(`reading the profiles of run ${runId}`, () => committedProfile(target, known)),
    countKeys: (columns) =>
      guarded(`counting the keys of run ${runId}`, () =>
        readCommitted(target, (paths) => countKeysIn(openKeyDuckDb, columns, localParts(paths))),
      ),
    verdict: () => guarded(`reading ${layout.verdict}`, () => readVerdict(fs, layout)),
    judge: (verdict) =>
      guarded(`writing ${layout.verdict}`, async () => {
        await createOnce(layout.verdict, controlText(verdict));
        return requireStored(await readVerdict(fs, layout), layout.verdict);
      }),
    decide: (decision) =>
      guarded(`writing ${layout.decision}`, async () => {
        await createOnce(layout.decision, controlText(decision));
        return requireStored(await readDecision(fs, layout), layout.decision);
      }),
    decision: () => guarded(`reading ${layout.decision}`, () => readDecision(fs, layout)),
  };
}

function requireStored<T>(found: T | undefined, path: string): T {
  if (found === undefined) {
    throw new JobError("OUTPUT_DAMAGED", `writing ${path}: it is gone since it was written`, {
      hint: "something else removes files here; run the same command again",
    });
  }
  return found;
}

function runWriter(
  target: Target,
  publisher: Publisher,
  { known, maker }: { readonly known: CommittedSpans; readonly maker: SpanCommit["maker"] },
): RunWriter {
  const { fs, layout } = target;
  const { guarded, answers: files } = publisher;
  const { writer } = maker;
  const spilled = createSpilledPieces(publisher.spill);
  return {
    spill: (span, rows) => guarded(`writing ${layout.committedPart(span.index)}`, () => spilled.add(span, rows)),
    commit: (span, output) =>
      guarded(`writing ${layout.committedPart(span.index)}`, async () => {
        const { outcome, part } = await publisher.commit({ span, output, maker, spilled: spilled.of(span) });
        addOwnPart(known, part);
        if (outcome === "committed") {
          addOwnProfile(known, span.index, output);
        }
        await spilled.drop(span);
        return outcome;
      }),
    finish: (attempt) => guarded(`finishing ${layout.folder}`, () => finishRun(target, publisher, { known, attempt })),
    answers: () => Promise.resolve(openAnswerFiles({ fs, layout, files, guarded, writer })),
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
    const { fs, layout, stored: planned } = target;
    const decision = planned.plan.staged ? await readDecision(fs, layout) : undefined;
    if (planned.plan.staged) {
      requireApproved(decision, layout.runId);
    }
    const found = await committedProfile(target, known);
    const rejected = rejectedRows(known);
    const profile = profileToWrite(
      layout,
      runProfileText(runProfileOf(planned.plan, { profile: found, rejected, decision })),
      decision,
    );
    await publisher.publish({ parts: known.own, committed: known.parts, profile, attempt });
  });
}

/**
 * Clears up after a run that is published or discarded. What may not be removed, as in an archive, stays: the run is over
 * anyway.
 */
async function tidyUp(publisher: Publisher, isPublished: boolean): Promise<void> {
  try {
    await publisher.clear();
    await publisher.clearEarlier(isPublished);
  } catch {
    // Readers do not see what stays.
  }
}
