import type { DuckDbAccess } from "../../../duckdb/instance.js";
import { requireKept } from "../../../publish/pruned-run.js";
import { pruneFolder } from "../common/pruning/earlier-files.js";
import { s3Pruning } from "./prune.js";
import { refuseForeign } from "../common/claim.js";
import { claimText } from "../common/named-run.js";
import { plannedLayout } from "../common/layout.js";
import { reviewedPlan, stripVerdicts } from "../common/erasing/reviewed-runs.js";
import { loadEncoder } from "../common/commit.js";
import type { Plan } from "../../../plan/plan.js";
import type { Sink, StoredPlan } from "../../port.js";
import { findHistory } from "../common/other-runs/history.js";
import { findPublishedParts } from "../common/other-runs/published-rows.js";
import { findPublished, readersAt, readPinned } from "../common/other-runs/published-runs.js";
import { fetchParts } from "./footers.js";
import { findUnfinished } from "../common/other-runs/unfinished-runs.js";
import { findPlan, laterRunOr, lostPlans, lostPlanText, sealedText, storedPlan } from "../common/stored-plan.js";
import { targetStateInS3, objectAt } from "./target-state.js";
import { notesBeforePlan, openS3Run } from "./run-sink.js";
import { type S3Tools, guarded } from "./tools.js";

/** Closing the sink closes `store`, `spool` and `duckdb`. */
export interface S3SinkOptions extends Omit<S3Tools, "duckdb" | "isExclusive"> {
  /** The URI as the spec wrote it. */
  readonly uri: string;
  /** Writes and reads parts; it may read and write in the spool's folder. */
  readonly duckdb: DuckDbAccess & AsyncDisposable;
  /** Pattern of the folders of the job's other runs: segments of a key, below the bucket. */
  readonly otherRunFolders: readonly (string | RegExp)[];
}

/** Opens a target in S3. Each span is one Parquet object, and its creation is the commit. */
export function openS3Sink(options: S3SinkOptions): Sink {
  const { folder, store, spool, duckdb } = options;
  const fs = targetStateInS3(store, folder);
  const folders = { root: `s3://${objectAt(folder).bucket}`, pattern: options.otherRunFolders };
  const tools: S3Tools = { ...options, isExclusive: askOnce(options) };
  return {
    target: folder,
    planTarget: { kind: "parquet", uri: options.uri },
    newRunAdds: false,
    find: (base) => guarded(`reading ${folder}`, () => findPlan(fs, folder, base)),
    unfinished: async (job, base) => await findUnfinished(fs, folders, { job, base }),
    published: (series) =>
      guarded(`looking for earlier runs of ${series.job}`, () =>
        findPublished(fs, { folder, folders }, { series, placeOf: (uri) => uri }),
      ),
    visible: () => guarded(`reading ${folder}`, () => readersAt(fs, folder)),
    readProfile: (pinned) =>
      guarded(`reading ${pinned.place}`, () => readPinned(fs, pinned, { path: pinned.place, code: "OBJECT_STORE" })),
    readPublished: ({ run }) =>
      guarded(`reading ${run.place}`, async () => {
        const { parts, rows } = await findPublishedParts(fs, run, { profile: run.place, code: "OBJECT_STORE" });
        await spool.prepare();
        return { format: "parquet", rows, folder: spool.folder, groups: fetchParts(tools, parts) };
      }),
    history: (request) =>
      guarded(`reading the runs of ${request.job}`, () => findHistory(fs, { folder, folders }, request)),
    prune: (request) =>
      guarded(`pruning ${request.place}`, async () => {
        await (request.dryRun ? undefined : spool.prepare()); // removes the spools of dead processes
        return await pruneFolder(s3Pruning(tools, request.place), request);
      }),
    stored: (runId) => guarded(`reading ${folder}`, () => reviewedPlan(fs, folder, runId)),
    stripVerdicts: (base) =>
      guarded(`erasing in ${folder}`, () => stripVerdicts({ fs, replace: replaceIn(tools) }, folder, base)),
    rehearse: () => Promise.resolve(["the right to write to the store, and its conditional requests (If-None-Match)"]),
    expect() {
      loadEncoder(duckdb);
    },
    notes: (runId) => notesBeforePlan(tools, runId),
    create: (plan) => createPlan(tools, plan),
    open: (stored, how) => guarded(`reading ${folder}`, () => openS3Run(tools, requireKept(stored), how)),
    async [Symbol.asyncDispose]() {
      await duckdb[Symbol.asyncDispose]();
      await spool[Symbol.asyncDispose]();
      store[Symbol.dispose]();
    },
  };
}

/** The object that says whether the store honours `If-None-Match`. */
function probeOf({ folder, writer }: Pick<S3SinkOptions, "folder" | "writer">): ReturnType<typeof objectAt> {
  return objectAt(`${folder}/_infer-batch/probe.${writer}`);
}

function replaceIn({ store }: S3Tools): (uri: string, text: string) => Promise<void> {
  return async (uri, text) => {
    await store.put(objectAt(uri), text);
  };
}

/** Stores a plan, unless another attempt has stored one: that is the one that counts. */
async function createPlan({ store, folder, isExclusive }: S3Tools, plan: Plan): Promise<StoredPlan> {
  const fs = targetStateInS3(store, folder);
  const layout = plannedLayout(folder, plan);
  return await guarded(`writing the plan to ${layout.plan}`, async () => {
    try {
      const request = { conditional: await isExclusive() };
      await store.create(objectAt(layout.claim), { ...request, body: claimText(layout) });
      await refuseForeign(fs, layout);
      for (const lost of await lostPlans(fs, layout)) {
        await store.create(objectAt(lost.plan), { ...request, body: lostPlanText });
      }
      await store.create(objectAt(layout.plan), { ...request, body: sealedText(plan) });
    } catch (error) {
      throw await laterRunOr(fs, layout, error);
    }
    return await storedPlan(fs, layout);
  });
}

/** Asks whether the store honours `If-None-Match`: once, but again if it was away. */
function askOnce(options: S3SinkOptions): () => Promise<boolean> {
  let asked: Promise<boolean> | undefined;
  return async () => {
    try {
      return await (asked ??= options.store.honoursIfNoneMatch(probeOf(options)));
    } catch (error) {
      asked = undefined;
      throw error;
    }
  };
}
