import { join } from "node:path";
import type { SpanOutput } from "../batch/types.js";
import type { DuckDb } from "../duckdb/instance.js";
import { errnoOf, JobError } from "../errors.js";
import type { Span } from "../plan/plan.js";
import { spanCount } from "../plan/spans.js";
import type { Compression } from "../spec/job-spec.js";
import { listFolder, refuseForeign } from "./claim.js";
import { guarded, hasHardLinks, makeFolder, orDrop } from "./durable.js";
import type { FileSystem } from "./file-system.js";
import { isStaged, type Layout, layoutOf } from "./layout.js";
import { commitPart } from "./parquet-commit.js";
import { checkFinished, type FinishedPart, type Manifest, writeFinish } from "./parquet-finish.js";
import { type CommittedPart, inspectParts, listParts } from "./parquet-parts.js";
import { readRejects } from "./parquet-rejects.js";
import type { AttemptFacts, CommitOutcome, Maker, RunSink, StoredPlan } from "./port.js";
import { planCheck } from "./standing-plan.js";
import { inTemporary, type LeftoverRules, removeLeftovers, type Temporary } from "./temporary.js";

export interface ParquetRunOptions extends LeftoverRules {
  /** Absolute. */
  readonly folder: string;
  readonly compression: Compression;
  readonly fs: FileSystem;
  /** Told of what a user should know and need not act on. */
  readonly warn: (message: string) => void;
}

/** What is known of a run's spans. */
interface Known {
  readonly committed: Uint8Array;
  readonly parts: Map<number, CommittedPart>;
}

/** A run and what its steps share. */
interface Run extends Known {
  readonly options: ParquetRunOptions;
  readonly duckdb: DuckDb;
  readonly stored: StoredPlan;
  readonly layout: Layout;
  /** Parts that this attempt committed or adopted. */
  readonly own: Map<number, FinishedPart>;
  readonly temporary: Temporary;
  /** Throws when another plan stands at the target, or a later one. */
  readonly check: () => Promise<void>;
  maker: Maker | undefined;
}

export async function openParquetRun(options: ParquetRunOptions, duckdb: DuckDb, stored: StoredPlan): Promise<RunSink> {
  const { fs, folder } = options;
  const layout = layoutOf(folder, stored.plan.runId);
  const check = planCheck(fs, layout, stored.planId);
  const run: Run = {
    options,
    duckdb,
    stored,
    layout,
    committed: new Uint8Array(spanCount(stored.plan)),
    parts: new Map(),
    own: new Map(),
    check,
    temporary: { fs, folders: [layout.temporary, ...(isStaged(layout.runId) ? [layout.parts] : [])], check },
    maker: undefined,
  };
  const manifest = await finishedManifest(run);
  if (manifest !== undefined) {
    await settle(fs, folder);
  }
  note(run, manifest === undefined ? await inspectParts(duckdb, stored, await listParts(fs, layout)) : of(manifest));
  return {
    finished: manifest !== undefined,
    committed: run.committed,
    get rejectedRows() {
      return [...run.parts.values()].reduce((sum, { rejected }) => sum + rejected, 0);
    },
    get makers() {
      return new Map([...run.parts].map(([span, part]) => [span, part.maker]));
    },
    rejects: () => readRejects(fs, layout, run.parts),
    refresh: () => guarded(`looking at ${folder}`, () => refresh(run)),
    begin: (attempt) => guarded(`preparing ${folder}`, () => begin(run, attempt)),
    commit: (span, output) =>
      guarded(`writing ${join(layout.parts, layout.part(span.index))}`, () => commit(run, span, output)),
    finish: () => guarded(`finishing ${folder}`, () => finish(run)),
  };
}

async function finishedManifest({ options: { fs, folder }, layout, stored }: Run): Promise<Manifest | undefined> {
  return await checkFinished(fs, layout, stored, await listFolder(fs, folder));
}

/** Looks at parts again, those of others too: what is published now must be whole now. */
async function refresh(run: Run): Promise<void> {
  const { options, duckdb, stored, layout, own } = run;
  const paths = await listParts(options.fs, layout);
  const others = new Map([...paths].filter(([span]) => !own.has(span)));
  note(run, await inspectParts(duckdb, stored, others));
}

async function begin(run: Run, attempt: AttemptFacts): Promise<void> {
  const { options, layout, temporary } = run;
  const { fs, writer } = options;
  // Whoever planned the run may have died before the plan's name was flushed: parts must not outlive it.
  await fs.sync(layout.control);
  run.maker = { writer, ...attempt };
  if (isStaged(layout.runId)) {
    await makeFolder(fs, layout.parts);
  }
  const linked = await inTemporary(temporary, async () => {
    await removeLeftovers(fs, layout.temporary, options);
    return await hasHardLinks(fs, layout.temporary, writer);
  });
  if (!linked) {
    oneWorkerOnly(options, attempt.workers);
  }
}

async function commit(run: Run, span: Span, output: SpanOutput): Promise<CommitOutcome> {
  const { options, duckdb, stored, layout, own, temporary, check, maker } = run;
  const { fs, writer, compression } = options;
  if (maker === undefined) {
    throw new Error("a span is committed before the run has begun");
  }
  const file = join(layout.temporary, `part-${span.index}.${writer}`);
  const { outcome, part } = await inTemporary(temporary, () =>
    orDrop(fs, file, () => commitPart({ fs, duckdb, compression, maker, layout, stored, span, output, check }, file)),
  );
  own.set(span.index, part);
  note(run, new Map([[span.index, part]]));
  return outcome;
}

async function finish(run: Run): Promise<void> {
  const { options, stored, layout, own, temporary, parts } = run;
  const { fs, writer } = options;
  const staged = isStaged(layout.runId);
  const folders = staged ? [...temporary.folders, layout.withdrawn] : temporary.folders;
  await inTemporary({ ...temporary, folders }, async () => {
    await refuseForeign(fs, layout);
    // By an attempt beside this one: its parts are in place then, and not staged any more.
    if (staged && (await finishedManifest(run)) !== undefined) {
      return;
    }
    await refresh(run);
    await writeFinish(fs, { layout, stored, writer, parts: own, committed: parts });
  });
}

function note(known: Known, parts: ReadonlyMap<number, CommittedPart>): void {
  for (const [span, { rejected, filtered, maker }] of parts) {
    known.committed[span] = 1;
    known.parts.set(span, { rejected, filtered, maker });
  }
}

function of({ parts }: Manifest): Map<number, CommittedPart> {
  return new Map(parts.map(({ span, rejected, filtered, maker }) => [span, { rejected, filtered, maker }]));
}

function oneWorkerOnly({ folder, warn }: ParquetRunOptions, workers: number): void {
  if (workers > 1) {
    throw new JobError("USAGE", `preparing ${folder}: it has no hard links, and ${workers} workers would share it`, {
      hint: "two workers could publish one part there; use one worker, or another file system for the output",
    });
  }
  warn(`${folder} has no hard links: parts are renamed into place, so run only one worker at a time`);
}

/** A finished run is told to the world: whoever wrote `_SUCCESS` may have died before its name was flushed. */
async function settle(fs: FileSystem, folder: string): Promise<void> {
  await fs.sync(folder).catch((error: unknown) => {
    // An archive that cannot be written to has nothing to flush.
    if (!["EROFS", "EINVAL"].includes(errnoOf(error) ?? "")) {
      throw error;
    }
  });
}
