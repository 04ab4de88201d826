import { ifThere, type TargetState } from "./file-system.js";
import type { Layout } from "./layout.js";
import { checkFinished, type Manifest } from "./manifest.js";
import { type CommittedPart, listParts } from "./parts.js";
import type { StoredPlan } from "../../port.js";

/** A run at a Parquet target. */
export interface Target {
  readonly fs: TargetState;
  /** Checks parts, given by span, against the plan. @throws JobError OUTPUT_DAMAGED */
  readonly inspect: (paths: ReadonlyMap<number, string>) => Promise<Map<number, CommittedPart>>;
  /** Reads the profiles of parts, given by span; a part without one is left out. */
  readonly profiles: (paths: ReadonlyMap<number, string>) => Promise<Map<number, string>>;
  readonly layout: Layout;
  readonly stored: StoredPlan;
  /** Throws when another plan is stored at the target, or a later run was opened. */
  readonly check: () => Promise<void>;
}

/** More attempts than a part can move: once, from where it is staged to its final path. */
const readsLimit = 10;

/**
 * Reads whether a run is finished, and its committed parts: all of a finished run, else those of the `wanted` spans. If
 * another attempt moves parts during the call, or removes them for a later run, it reads again.
 */
export async function committedParts(
  { fs, inspect, layout, stored, check }: Target,
  wanted: (span: number) => boolean,
): Promise<{ finished: boolean; parts: Map<number, CommittedPart> }> {
  return await readingParts({ fs, check }, async (reading) => {
    const manifest = await checkFinished(fs, layout, stored);
    if (manifest !== undefined) {
      return { finished: true, parts: of(manifest) };
    }
    const paths = new Map([...(await listParts(fs, layout))].filter(([span]) => wanted(span)));
    reading(paths);
    const parts = await inspect(paths);
    await check(); // parts that a later run removed must not be scored again
    return { finished: false, parts };
  });
}

/** Reads the profiles of committed parts, by span; a part without one is left out. */
export async function partProfiles(
  { fs, profiles, layout, check }: Target,
  wanted: (span: number) => boolean,
): Promise<Map<number, string>> {
  return await readingParts({ fs, check }, async (reading) => {
    const paths = new Map([...(await listParts(fs, layout))].filter(([span]) => wanted(span)));
    reading(paths);
    return await profiles(paths);
  });
}

/** Calls `read` with the paths of all committed parts, and calls it again if a part was moved during the call. */
export async function readCommitted<T>(
  { fs, layout, check }: Pick<Target, "fs" | "layout" | "check">,
  read: (paths: readonly string[]) => Promise<T>,
): Promise<T> {
  return await readingParts({ fs, check }, async (reading) => {
    const paths = await listParts(fs, layout);
    reading(paths);
    return await read([...paths.values()]);
  });
}

/** Runs `read`, which reports the paths of the parts that it reads, and runs it again if one of them disappears. */
async function readingParts<T>(
  { fs, check }: Pick<Target, "fs" | "check">,
  read: (reading: (paths: ReadonlyMap<number, string>) => void) => Promise<T>,
): Promise<T> {
  for (let reads = 1; ; reads += 1) {
    let paths: ReadonlyMap<number, string> = new Map();
    try {
      return await read((known) => {
        paths = known;
      });
    } catch (error) {
      await check();
      if (reads === readsLimit || !(await isAnyGone(fs, paths.values()))) {
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
    parts.map(({ span, rejected, rejects_sha256: rejectsSha256, filtered, erased, maker }) => [
      span,
      { rejected, rejectsSha256, filtered, erased, maker },
    ]),
  );
}
