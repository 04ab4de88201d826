import { JobError } from "../../../util/errors.js";
import { knownOf, type Known, makersOf, note, noteOwn, rejectedRows } from "../common/known-parts.js";
import { isStaged, layoutOf } from "../common/layout.js";
import { lookAt, type Target } from "../common/committed-parts.js";
import { readRejects } from "../common/rejects.js";
import { refuseForeign } from "../common/claim.js";
import type { AttemptJson, Maker, RunSink, StoredPlan } from "../../port.js";
import { planCheck } from "../common/stored-plan.js";
import { clearEarlierRuns, clearProbes, clearWorking } from "./clear.js";
import { commitToS3 } from "./commit.js";
import { finishInS3 } from "./finish.js";
import { inspectInS3 } from "./footers.js";
import { lookInS3 } from "./target-state.js";
import { type S3Tools, telling } from "./tools.js";

export async function openS3Run(tools: S3Tools, stored: StoredPlan): Promise<RunSink> {
  const { folder, store, writer } = tools;
  const fs = lookInS3(store, folder);
  const layout = layoutOf(folder, stored.plan.runId);
  const check = planCheck(fs, layout, stored.planId);
  const inspect: Target["inspect"] = (uris) => inspectInS3({ ...tools, stored }, uris);
  const target: Target = { fs, inspect, layout, stored, check };
  const { finished, parts } = await lookAt(target, () => true);
  const known = knownOf(stored, parts);
  let maker: Omit<Maker, "batchSize"> | undefined;
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
    unfit: () => [], // a part has the columns' own types
    refresh: () =>
      telling(`looking at ${folder}`, async () => {
        note(known, (await lookAt(target, (span) => !known.parts.has(span))).parts);
      }),
    begin: (attempt) =>
      telling(`preparing ${folder}`, async () => {
        await prepare(tools, target, attempt.workers);
        maker = { writer, ...attempt };
      }),
    commit: (span, output) =>
      telling(`writing ${layout.committedPart(span.index)}`, async () => {
        if (maker === undefined) {
          throw new Error("a span is committed before the run has begun");
        }
        const { outcome, part } = await commitToS3({ tools, target, maker, span, output });
        noteOwn(known, part);
        return outcome;
      }),
    tidy: () => tidyUp(tools, target),
    finish: (attempt) => telling(`finishing ${folder}`, () => finishRun(tools, target, { known, attempt })),
    failed: () => Promise.resolve(),
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
      `preparing ${folder}: the store does not keep to If-None-Match, and ${workers} workers would share it`,
      { hint: "two workers could publish one part there; use one worker, or another store for the output" },
    );
  }
  warn(`${folder}: the store does not keep to If-None-Match, so run only one worker at a time`);
}

async function finishRun(
  tools: S3Tools,
  target: Target,
  { known, attempt }: { readonly known: Known; readonly attempt: AttemptJson | undefined },
): Promise<void> {
  const { fs, layout } = target;
  await target.check(); // before what a later run has put there is taken for foreign
  await refuseForeign(fs, layout);
  // Those of others are looked at again: what is published now must be whole now.
  const now = await lookAt(target, (span) => !known.own.has(span));
  note(known, now.parts);
  if (!now.finished) {
    await finishInS3(tools, target, { parts: known.own, committed: known.parts, attempt });
  } else if (isStaged(layout.runId)) {
    await clearWorking(tools, layout); // by an attempt beside this one, which may have died before it did
  }
}

/** Nothing rests on it: what may not be removed stays. */
async function tidyUp(tools: S3Tools, target: Target): Promise<void> {
  try {
    await clearWorking(tools, target.layout);
    await clearEarlierRuns(tools, target);
  } catch {
    // The run is complete all the same.
  }
}
