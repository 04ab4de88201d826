import { atKey, type GoldenReader, type JobContext } from "../../scoring/context.js";
import type { PinnedFile, Plan } from "../../plan/plan.js";
import type { ListedShard } from "../../plan/compare.js";
import type { OpenShard } from "../../storage/port.js";
import { JobError } from "../../util/errors.js";

/** The file of `checks.golden`. */
export interface GoldenFile extends AsyncDisposable {
  readonly listed: ListedShard;
  readonly file: OpenShard;
  readonly reader: GoldenReader;
  /** The digest of the file, in hexadecimal. */
  readonly sha256: string;
}

type GoldenContext = Pick<JobContext, "spec" | "where" | "source" | "signal" | "openGoldenReader">;

/** Opens the file of `checks.golden`, and computes its digest. @throws JobError FILE_MISSING */
export async function openGolden(context: GoldenContext, path: string): Promise<GoldenFile> {
  const { source, signal } = context;
  return await atKey(context, ["checks", "golden", "path"], async () => {
    const { shards, folders } = await source.list([path]);
    const [listed] = shards;
    if (listed === undefined) {
      throw new JobError("FILE_MISSING", `opening the golden rows: there is no file ${path}`, {
        hint: "relative paths start from the spec's folder; docs/absolute-checks.md says how to make the file",
      });
    }
    const file = await source.open(listed);
    try {
      const sha256 = await file.digest(signal);
      const reader = await context.openGoldenReader(folders);
      return {
        listed,
        file,
        reader,
        sha256,
        async [Symbol.asyncDispose]() {
          await reader[Symbol.asyncDispose]();
          await file[Symbol.asyncDispose]();
        },
      };
    } catch (error) {
      await file[Symbol.asyncDispose]();
      throw error;
    }
  });
}

/** Returns the pin of the file of `checks.golden` for a plan; undefined: the spec has none. */
export async function pinGolden(context: GoldenContext): Promise<PinnedFile | undefined> {
  const path = context.spec.checks?.golden?.path;
  if (path === undefined) {
    return undefined;
  }
  await using golden = await openGolden(context, path);
  return { uri: path, sha256: golden.sha256 };
}

/**
 * Checks that the file of `checks.golden` is the one that a plan pins.
 * @throws JobError INPUT_CHANGED
 */
export function requirePinned({ checks }: Pick<Plan, "checks">, found: PinnedFile | undefined): void {
  const pinned = checks?.golden;
  if (found !== undefined && pinned !== undefined && found.sha256 !== pinned.sha256) {
    throw new JobError(
      "INPUT_CHANGED",
      `comparing ${found.uri} with the plan of this unfinished run: its sha256 is ${found.sha256}, planned ${pinned.sha256}`,
      { hint: "restore the planned golden rows and run again; or abandon this run with --new-run" },
    );
  }
}
