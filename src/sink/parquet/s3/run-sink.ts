import { unlink } from "node:fs/promises";
import { JobError } from "../../../util/errors.js";
import type { RunId } from "../../../plan/plan.js";
import type { Opening } from "../../../publish/opening.js";
import type { RunSink, StoredPlan } from "../../port.js";
import type { RunNotes } from "../../run-notes.js";
import type { Target } from "../common/committed-parts.js";
import type { SmallFiles } from "../common/failures.js";
import { layoutOf, plannedLayout } from "../common/layout.js";
import { runNotes } from "../common/run-notes.js";
import { openRun, type Publisher } from "../common/run-sink.js";
import { planCheck } from "../common/stored-plan.js";
import { answerObjects } from "./answers.js";
import { clearEarlierRuns, clearProbes, clearWorking } from "./clear.js";
import { commitToS3, spoolPiece } from "./commit.js";
import { finishInS3 } from "./finish.js";
import { fetchParts, inspectInS3, profilesInS3 } from "./footers.js";
import { objectAt, targetStateInS3 } from "./target-state.js";
import { type S3Tools, guarded } from "./tools.js";

export async function openS3Run(tools: S3Tools, stored: StoredPlan, how?: Opening): Promise<RunSink> {
  const { folder, store, writer } = tools;
  const fs = targetStateInS3(store, folder);
  const layout = plannedLayout(folder, stored.plan);
  const check = planCheck(fs, layout, stored.planId);
  const inspect: Target["inspect"] = (uris) => inspectInS3({ ...tools, stored }, uris, how);
  const profiles: Target["profiles"] = (uris) => profilesInS3(tools, uris);
  const target: Target = { fs, inspect, profiles, layout, stored, check };
  return await openRun(target, s3Publisher(tools, target), writer);
}

function s3Publisher(tools: S3Tools, target: Target): Publisher {
  return {
    guarded,
    prepare: (workers) => prepare(tools, target, workers),
    answers: answerObjects(tools, target),
    spill: {
      pathOf: () => tools.spool.newPath(),
      encode: (rows, path) => spoolPiece(tools, rows, path),
      remove: (path) => unlink(path),
    },
    openKeyDuckDb: tools.openKeyDuckDb,
    partsFolder: tools.spool.folder,
    localParts: (uris) => fetchParts(tools, uris),
    commit: (commit) => commitToS3({ tools, target, ...commit }),
    async finishing(work) {
      await target.check(); // first: objects of a later run would count as foreign ones
      await work();
    },
    async createOnce(path, text) {
      await target.check();
      await createOnce(tools, path, text);
    },
    smallFiles: (stop) => smallFiles(tools, stop),
    isDead: tools.isDead,
    away: "OBJECT_STORE",
    publish: (run) => finishInS3(tools, target, run),
    clear: () => clearWorking(tools, target.layout),
    clearEarlier: (isPublished) => clearEarlierRuns(tools, target, isPublished),
  };
}

async function createOnce({ store, isExclusive }: S3Tools, path: string, text: string): Promise<void> {
  const conditional = await isExclusive();
  const object = objectAt(path);
  if (conditional || (await store.head(object)) === undefined) {
    await store.create(object, { body: text, conditional });
  }
}

/** Notes on a run that is not planned yet, so that no later run can supersede it. */
export function notesBeforePlan(tools: S3Tools, runId: RunId): RunNotes {
  const { folder, store, writer } = tools;
  const target = { fs: targetStateInS3(store, folder), layout: layoutOf(folder, runId) };
  return runNotes(target, { guarded, createOnce: (path, text) => createOnce(tools, path, text) }, writer);
}

function smallFiles({ store }: S3Tools, stop: AbortSignal): SmallFiles {
  const objects = store.until(stop);
  return {
    exists: async (uri) => (await objects.head(objectAt(uri))) !== undefined,
    read: async (uri) => (await objects.readText(objectAt(uri)))?.text,
    replace: (uri, text) => objects.put(objectAt(uri), text),
  };
}

async function prepare(tools: S3Tools, target: Target, workers: number): Promise<void> {
  const { folder, warn } = tools;
  await target.check();
  await clearProbes(tools, target.layout, tools.isDead);
  if (await tools.isExclusive()) {
    return;
  }
  if (workers > 1) {
    throw new JobError(
      "USAGE",
      `preparing ${folder}: the store does not honour If-None-Match, and ${workers} workers would share it`,
      { hint: "two workers could publish one part there; use one worker, or another store for the output" },
    );
  }
  warn(
    `${folder}: the store does not honour If-None-Match, so attempts at once could replace each other's parts and keys; run only one worker at a time`,
  );
}
