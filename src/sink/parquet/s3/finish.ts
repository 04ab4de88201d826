import { spanCount } from "../../../plan/spans.js";
import { type ManifestPart, manifestPart, manifestText, describeSameRun } from "../common/manifest.js";
import type { Target } from "../common/committed-parts.js";
import { staleRejects } from "../common/rejects.js";
import type { FinishedRun } from "../common/run-sink.js";
import { clearEarlierRuns, clearProbes, clearWorking } from "./clear.js";
import { successText } from "../common/named-run.js";
import { retractIfReplaced } from "./retract-superseded.js";
import { objectAt } from "./target-state.js";
import { swapIn } from "./swap.js";
import { mapBounded, type S3Tools } from "./tools.js";

/**
 * Copies the parts into place, then writes the manifest, then `_SUCCESS`. Each step may be repeated, and done by
 * several attempts at once.
 */
export async function finishInS3(tools: S3Tools, target: Target, known: FinishedRun): Promise<void> {
  const { store } = tools;
  const { fs, layout, stored } = target;
  const spans = Array.from({ length: spanCount(stored.plan) }, (_, span) => span);
  const parts: ManifestPart[] = await mapBounded(spans, (span) =>
    manifestPart(fs, { layout, stored, ...known }, span),
  ).catch(async (error: unknown) => {
    await target.check(); // a later run may have removed them
    throw error;
  });
  if (layout.staged) {
    await swapIn(tools, target);
  }
  const stale = await staleRejects(fs, layout, parts);
  await mapBounded(stale, (name) => store.remove(objectAt(`${layout.rejects}/${name}`)));
  await publishText(tools, target, { uri: layout.profile, text: known.profile.text, isSame: areEqual });
  await publishText(tools, target, {
    uri: layout.manifest,
    text: manifestText(stored, parts, { profile: known.profile.entry, attempt: known.attempt }),
    isSame: describeSameRun,
  });
  await publishText(tools, target, {
    uri: layout.success,
    text: successText(stored),
    isSame: areEqual,
  });
  await clearProbes(tools, layout, () => true);
  await clearWorking(tools, layout);
  await clearEarlierRuns(tools, target, true);
}

/** More than the attempts that can write one object at once. */
const triesLimit = 10;

/**
 * Creates a small object, or replaces the one of an earlier run or an earlier finish of this run; never a later run's.
 * `isSame`: whether the existing object will do. Of many attempts that finish a run at once, one writes.
 */
async function publishText(
  { store, isExclusive }: S3Tools,
  target: Target,
  { uri, text, isSame }: { uri: string; text: string; isSame: (there: string, text: string) => boolean },
): Promise<void> {
  const object = objectAt(uri);
  const exclusive = await isExclusive();
  for (let tries = 0; tries < triesLimit; tries += 1) {
    await target.check();
    const there = await store.readText(object);
    if (there !== undefined && isSame(there.text, text)) {
      return;
    }
    const written =
      there === undefined
        ? (await store.create(object, { body: text, conditional: exclusive })).kind === "created"
        : (await store.put(object, text, exclusive ? there.etag : undefined)) === "written";
    if (written) {
      await retractIfReplaced(target, async () => {
        const now = await store.readText(object);
        if (now?.text === text) {
          await store.remove(object, now.etag);
        }
      });
      return;
    }
  }
  throw new Error(`${uri} was written to by others again and again`);
}

function areEqual(one: string, other: string): boolean {
  return one === other;
}
