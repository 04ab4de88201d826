import type { RunId } from "../../../plan/plan.js";
import { listFolder } from "../common/file-system.js";
import { isEarlier, isStaged, type Layout, layoutOf, runOfPart } from "../common/layout.js";
import type { Target } from "../common/committed-parts.js";
import { lookInS3, objectAt } from "./target-state.js";
import { forEachOf, type S3Tools } from "./tools.js";

const probeStart = "probe.";

/** Removes what asked the store whether it keeps to `If-None-Match`, of attempts that ended before they did. */
export async function clearProbes(
  { store, folder, writer }: S3Tools,
  { runs }: Layout,
  isGone: (writer: string) => boolean,
): Promise<void> {
  const names = (await listFolder(lookInS3(store, folder), runs)).filter((name) => name.startsWith(probeStart));
  const left = names.filter((name) => {
    const owner = name.slice(probeStart.length);
    return owner !== writer && isGone(owner);
  });
  await forEachOf(left, (name) => store.remove(objectAt(`${runs}/${name}`)));
}

/** Removes what attempts made for a run that is past: parts that were staged. */
export async function clearWorking({ store, folder }: S3Tools, layout: Layout): Promise<void> {
  if (isStaged(layout.runId)) {
    const names = await listFolder(lookInS3(store, folder), layout.parts);
    await forEachOf(names, (name) => store.remove(objectAt(`${layout.parts}/${name}`)));
  }
}

/** The same for all runs before this one; and what attempts of them have published or set aside too late. */
export async function clearEarlierRuns(tools: S3Tools, { fs, layout }: Target): Promise<void> {
  if (!isStaged(layout.runId)) {
    return;
  }
  for (const name of (await listFolder(fs, layout.runs)) as RunId[]) {
    if (isEarlier(name, layout)) {
      await clearWorking(tools, layoutOf(layout.folder, name));
    }
  }
  for (const folder of [layout.folder, layout.rejects]) {
    const names = (await listFolder(fs, folder)).filter((name) => isEarlier(runOfPart(name), layout));
    await forEachOf(names, (name) => tools.store.remove(objectAt(`${folder}/${name}`)));
  }
}
