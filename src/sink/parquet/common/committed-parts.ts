import { ifThere, type TargetState } from "./file-system.js";
import type { Layout } from "./layout.js";
import { checkFinished, type Manifest } from "./manifest.js";
import { type CommittedPart, listParts } from "./parts.js";
import type { StoredPlan } from "../../port.js";

/** A run at its target. */
export interface Target {
  readonly fs: TargetState;
  /** Checks parts, given by span, against the plan. @throws JobError OUTPUT_DAMAGED */
  readonly inspect: (paths: ReadonlyMap<number, string>) => Promise<Map<number, CommittedPart>>;
  readonly layout: Layout;
  readonly stored: StoredPlan;
  /** Throws when another plan stands there. */
  readonly check: () => Promise<void>;
}

/** More than moves of a part: from where it was staged to where it stays. */
const looksLimit = 10;

/**
 * Whether the run is finished, and its parts: of one that is not, those that `wanted` names. An attempt beside this
 * one may move them meanwhile, and one of a later run take them away.
 */
export async function lookAt(
  { fs, inspect, layout, stored, check }: Target,
  wanted: (span: number) => boolean,
): Promise<{ finished: boolean; parts: Map<number, CommittedPart> }> {
  for (let looks = 1; ; looks += 1) {
    let paths = new Map<number, string>();
    try {
      const manifest = await checkFinished(fs, layout, stored);
      if (manifest !== undefined) {
        return { finished: true, parts: of(manifest) };
      }
      paths = new Map([...(await listParts(fs, layout))].filter(([span]) => wanted(span)));
      const parts = await inspect(paths);
      await check(); // parts that a later run has taken away are not parts to be made again
      return { finished: false, parts };
    } catch (error) {
      await check();
      if (looks === looksLimit || !(await isAnyGone(fs, paths.values()))) {
        throw error;
      }
    }
  }
}

async function isAnyGone(fs: TargetState, paths: Iterable<string>): Promise<boolean> {
  for (const path of paths) {
    if ((await ifThere(fs.sizeOf(path))) === undefined) {
      return true;
    }
  }
  return false;
}

function of({ parts }: Manifest): Map<number, CommittedPart> {
  return new Map(
    parts.map(({ span, rejected, rejects_sha256: rejectsSha256, filtered, maker }) => [
      span,
      { rejected, rejectsSha256, filtered, maker },
    ]),
  );
}
