import { spanCount } from "../../../plan/spans.js";
import { lostPart } from "../common/damage.js";
import { isEarlier, runOfPart } from "../common/layout.js";
import { runIdIn } from "../common/named-run.js";
import type { Target } from "../common/committed-parts.js";
import { listFolder } from "../common/file-system.js";
import { retractIfReplaced, retractIfSuperseded } from "./retract-superseded.js";
import { objectAt } from "./target-state.js";
import { mapBounded, type S3Tools } from "./tools.js";

/**
 * Replaces the parts that readers see with those of a later run; readers find no `_SUCCESS` during the swap. Each step
 * may be repeated after a crash, and done by several attempts at once.
 */
export async function swapIn(tools: S3Tools, target: Target): Promise<void> {
  const { store } = tools;
  const { fs, layout, stored, check } = target;
  await withdraw(tools, target, layout.success);
  const spans = Array.from({ length: spanCount(stored.plan) }, (_, span) => span);
  const gone = (await mapBounded(spans, (span) => copyIn(tools, target, span))).find((from) => from !== undefined);
  const retract = (): Promise<unknown> =>
    mapBounded(spans, (span) => store.remove(objectAt(`${layout.folder}/${layout.part(span)}`)));
  if (gone !== undefined) {
    await retractIfSuperseded(check, retract); // without that part, no attempt can publish this run
    throw lostPart(
      stored.plan,
      `finishing ${layout.folder}: ${gone} is gone since it was committed`,
      "something else removes objects here; run the same command again, which scores that span anew",
    );
  }
  await retractIfReplaced(target, retract);
  // Again: a late attempt of an earlier run may have published that run before it could see these copies.
  await withdraw(tools, target, layout.success);
  for (const folder of [layout.folder, layout.rejects]) {
    const names = (await listFolder(fs, folder)).filter((name) => isEarlier(runOfPart(name), layout));
    await mapBounded(names, (name) => store.remove(objectAt(`${folder}/${name}`)));
  }
}

/** Removes an earlier run's `_SUCCESS` or manifest, before any of its parts is removed. */
export async function withdraw(
  { store }: S3Tools,
  { layout, check }: Pick<Target, "layout" | "check">,
  uri: string,
): Promise<void> {
  const object = objectAt(uri);
  for (;;) {
    await check();
    const there = await store.readText(object);
    if (there === undefined || runIdIn(there.text) === layout.runId) {
      return;
    }
    // In a store that ignores `If-Match`, this may remove one that another finisher has published since: this attempt
    // publishes it again.
    if ((await store.remove(object, there.etag)) === "removed") {
      return;
    }
  }
}

/**
 * Copies a part into place. The original is removed only at the end of the finish: the part counts as committed at
 * every moment.
 * @returns the path of the original when neither exists
 */
async function copyIn({ store }: S3Tools, { layout }: Target, span: number): Promise<string | undefined> {
  const [from = "", to = from] = layout.pathsOf(span).map(String);
  const isCopied = await store.copy(objectAt(from), objectAt(to));
  return !isCopied && (await store.head(objectAt(to))) === undefined ? from : undefined;
}
