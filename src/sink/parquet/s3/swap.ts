import { JobError } from "../../../util/errors.js";
import { spanCount } from "../../../plan/spans.js";
import { isEarlier, runOfPart } from "../common/layout.js";
import { runIdIn } from "../common/named-run.js";
import type { Target } from "../common/committed-parts.js";
import { listFolder } from "../common/file-system.js";
import { retractIfSuperseded } from "./retract-superseded.js";
import { objectAt } from "./target-state.js";
import { forEachOf, type S3Tools } from "./tools.js";

/**
 * Puts the parts of a later run in the place of those that readers see, who find no `_SUCCESS` meanwhile. Each step may
 * be repeated after a crash, and done by several at once.
 */
export async function swapIn(tools: S3Tools, target: Target): Promise<void> {
  const { store } = tools;
  const { fs, layout, stored, check } = target;
  await withdrawSuccess(tools, target);
  const spans = Array.from({ length: spanCount(stored.plan) }, (_, span) => span);
  const gone = (await forEachOf(spans, (span) => copyIn(tools, target, span))).find((from) => from !== undefined);
  // Also when one could not be copied: a later run that has removed it may not have seen the others come.
  await retractIfSuperseded(check, async () => {
    await forEachOf(spans, (span) => store.remove(objectAt(`${layout.folder}/${layout.part(span)}`)));
  });
  if (gone !== undefined) {
    throw new JobError("OUTPUT_DAMAGED", `finishing ${layout.folder}: ${gone} is gone since it was committed`, {
      hint: "something else removes objects here; run the same command again, which scores that span anew",
    });
  }
  for (const folder of [layout.folder, layout.rejects]) {
    const names = (await listFolder(fs, folder)).filter((name) => isEarlier(runOfPart(name), layout));
    await forEachOf(names, (name) => store.remove(objectAt(`${folder}/${name}`)));
  }
}

/** Takes an earlier run's `_SUCCESS` away before any of its parts goes. */
async function withdrawSuccess({ store }: S3Tools, { layout, check }: Target): Promise<void> {
  const object = objectAt(layout.success);
  for (;;) {
    await check();
    const there = await store.readText(object);
    if (there === undefined || runIdIn(there.text) === layout.runId) {
      return;
    }
    // Where the store knows no `If-Match`, one that a finisher beside this one has published since may go: this one
    // will publish it again.
    if ((await store.remove(object, there.etag)) === "removed") {
      return;
    }
  }
}

/**
 * A copy first, then, at the very end, the original goes: the part counts as committed at every moment.
 * @returns the original when neither is there
 */
async function copyIn({ store }: S3Tools, { layout }: Target, span: number): Promise<string | undefined> {
  const [from = "", to = from] = layout.placesOf(span).map(String);
  const isCopied = await store.copy(objectAt(from), objectAt(to));
  return !isCopied && (await store.stored(objectAt(to))) === undefined ? from : undefined;
}
