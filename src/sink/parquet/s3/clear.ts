import { basename } from "node:path/posix";
import { splitRunId } from "../../../plan/identity.js";
import type { RunId } from "../../../plan/plan.js";
import { listFolder } from "../common/file-system.js";
import { isEarlier, type Layout, layoutOf, runOfPart } from "../common/layout.js";
import type { Target } from "../common/committed-parts.js";
import { targetStateInS3, objectAt } from "./target-state.js";
import { mapBounded, type S3Tools } from "./tools.js";

const probeStart = "probe.";

/** Removes the probes of dead attempts: objects that test whether the store honours `If-None-Match`. */
export async function clearProbes(
  { store, folder, writer }: S3Tools,
  { runs }: Layout,
  isGone: (writer: string) => boolean,
): Promise<void> {
  const names = (await listFolder(targetStateInS3(store, folder), runs)).filter((name) => name.startsWith(probeStart));
  const left = names.filter((name) => {
    const owner = name.slice(probeStart.length);
    return owner !== writer && isGone(owner);
  });
  await mapBounded(left, (name) => store.remove(objectAt(`${runs}/${name}`)));
}

/**
 * Removes the working objects of a run that is over: its staged parts, and answers. Costs one listing where there
 * are none.
 */
export async function clearWorking({ store, folder }: S3Tools, layout: Layout): Promise<void> {
  const fs = targetStateInS3(store, folder);
  const there = new Set(await listFolder(fs, layout.control));
  for (const working of [layout.staging, layout.answers].filter((one) => there.has(basename(one)))) {
    const names = await listFolder(fs, working);
    await mapBounded(names, (name) => store.remove(objectAt(`${working}/${name}`)));
  }
}

/**
 * Removes the working objects of all earlier runs and, once this run is published, what their attempts have published
 * too late. Before that, the parts of an earlier run are those that readers read.
 */
export async function clearEarlierRuns(
  tools: S3Tools,
  { fs, layout }: Pick<Target, "fs" | "layout">,
  isPublished: boolean,
): Promise<void> {
  if (splitRunId(layout.runId).number === 1) {
    return;
  }
  for (const name of (await listFolder(fs, layout.runs)) as RunId[]) {
    if (isEarlier(name, layout)) {
      await clearWorking(tools, layoutOf(layout.folder, name));
    }
  }
  for (const folder of isPublished ? [layout.folder, layout.rejects] : []) {
    const names = (await listFolder(fs, folder)).filter((name) => isEarlier(runOfPart(name), layout));
    await mapBounded(names, (name) => tools.store.remove(objectAt(`${folder}/${name}`)));
  }
}
