import { JobError } from "../../util/errors.js";
import { lakeTableError, lakeTables } from "../../plan/lake-tables.js";
import type { Listing } from "../../storage/port.js";
import { atKey, type JobContext } from "../../scoring/context.js";

const inputPath = ["input", "path"];

export const laterInputHint = "run the same command again when the input is there, or correct input.path";
const pathHint = "paths are relative to the spec's folder; input.wait makes a run wait for input that comes later";

/** Folders that are searched for the log of a lakehouse table at once. */
const rootsAtOnce = 8;

/** Checks that `input.ready` exists. @throws JobError INPUT_NOT_READY */
export async function awaitInput({ spec, source }: JobContext): Promise<void> {
  const { ready } = spec.input;
  if (ready !== undefined && !(await source.exists(ready))) {
    throw new JobError("INPUT_NOT_READY", `waiting for input: ${ready} (input.ready) is not there yet`, {
      hint: "run the same command again later; exit code 75 tells a scheduler to retry",
    });
  }
}

export async function listInput(context: JobContext): Promise<Listing> {
  return await atKey(context, inputPath, () => context.source.list(context.spec.input.path));
}

/** The job's input as it is now, all of it. @throws JobError as `awaitInput`, `listInput` and `requireWhole` */
export async function wholeInput(context: JobContext): Promise<Listing> {
  await awaitInput(context);
  const listing = await listInput(context);
  await requireWhole(context, listing);
  return listing;
}

/**
 * Refuses a listing that lacks rows that `input.path` names, or has rows that do not count. Only planning calls it:
 * from then on the plan names the input.
 * @throws JobError FILE_MISSING, SPEC_INVALID, INPUT_NOT_READY
 */
export async function requireWhole(context: JobContext, listing: Listing): Promise<void> {
  requireListed(context, listing);
  requireFolders(context, listing);
  await atKey(context, inputPath, () => refuseLakeTables(context, listing));
  refuseUncommitted(context, listing);
}

export function warnOfUnmatched({ log }: Pick<JobContext, "log">, { shards, unmatched }: Listing): void {
  if (shards.length > 0 && unmatched.length > 0) {
    log.warn(`no file matches ${unmatched.join(", ")}; other patterns of input.path have some`);
  }
}

/**
 * Refuses a listing that lacks a named file or has a match that cannot be read.
 * @throws JobError FILE_MISSING for a path without wildcards that does not exist, SPEC_INVALID for a match that is no
 * file
 */
export function requireListed({ where }: JobContext, { missingFiles, unreadable: [unread, ...others] }: Listing): void {
  if (missingFiles.length > 0) {
    throw new JobError("FILE_MISSING", `reading ${where(inputPath)}: there is no ${missingFiles.join(", ")}`, {
      hint: pathHint,
    });
  }
  if (unread !== undefined) {
    const { pattern, path, finding, hint } = unread;
    const more = others.length === 0 ? "" : ` (and ${others.length} more that cannot be read)`;
    throw new JobError("SPEC_INVALID", `reading ${where(inputPath)}: ${pattern} finds ${path}, ${finding}${more}`, {
      hint,
    });
  }
}

/**
 * Refuses a missing folder: temporary if its parent exists, as for a day that is still to come; else the path is wrong.
 */
function requireFolders({ spec, where }: JobContext, { missingFolders }: Listing): void {
  const first = missingFolders.find(({ parentExists }) => !parentExists) ?? missingFolders[0];
  if (first === undefined) {
    return;
  }
  const found = `there is no folder ${first.folder} (${first.pattern})`;
  throw first.parentExists
    ? new JobError("INPUT_NOT_READY", `planning ${spec.name}: ${found}`, {
        hint: laterInputHint,
      })
    : new JobError("FILE_MISSING", `reading ${where(inputPath)}: ${found}`, {
        hint: pathHint,
      });
}

/** Refuses files below `_temporary`, which a job of Spark or Hadoop has not committed: they may hold rows twice. */
function refuseUncommitted({ spec }: JobContext, { shards }: Listing): void {
  const uncommitted = shards.find(({ uri }) => uri.includes("/_temporary/"));
  if (uncommitted !== undefined) {
    throw new JobError(
      "INPUT_NOT_READY",
      `planning ${spec.name}: ${uncommitted.uri} was written by a job of Spark or Hadoop that has not committed it`,
      {
        hint: "run the same command again when that job is done; if it died, remove _temporary, or write a pattern that leaves it out",
      },
    );
  }
}

/** Refuses files of a lakehouse table, not all of which are current. @throws JobError SPEC_INVALID */
async function refuseLakeTables({ source }: JobContext, { tableRoots }: Listing): Promise<void> {
  const roots = [...new Map(tableRoots.map(({ folder, pattern }) => [folder, pattern]))];
  for (let start = 0; start < roots.length; start += rootsAtOnce) {
    const group = roots.slice(start, start + rootsAtOnce);
    await Promise.all(
      group.flatMap(([folder, pattern]) =>
        lakeTables.map(async (table) => {
          const names = await source.listNames(`${folder}/${table.log}`);
          if (names.some((name) => table.isLogFile(name))) {
            throw lakeTableError(pattern, folder, table);
          }
        }),
      ),
    );
  }
}
