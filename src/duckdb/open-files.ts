import { readdirSync, readFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { isOutOfFiles, JobError } from "../util/errors.js";

/** What to do about the limit of open files. */
export const openFilesHint =
  "raise the limit of open files (`ulimit -n`, LimitNOFILE in systemd), then run the same command again";

/** How many files a process may open, and how many it has open. */
export interface OpenFiles {
  readonly limit: number;
  readonly open: number;
}

/**
 * Counts the open files of this process, sockets and pipes included. The limit is infinite if the system does not
 * report it.
 * @throws Error EMFILE or ENFILE if there is no file left to count with
 */
function openFiles(): OpenFiles {
  try {
    const [, limit = ""] = /^Max open files +(\d+) /m.exec(readFileSync("/proc/self/limits", "utf8")) ?? [];
    const open = readdirSync("/proc/self/fd").length - 1; // without the folder itself
    return { limit: limit === "" ? Number.POSITIVE_INFINITY : Number(limit), open };
  } catch (error) {
    if (isOutOfFiles(error)) {
      throw error;
    }
    return { limit: Number.POSITIVE_INFINITY, open: 0 }; // not Linux
  }
}

/**
 * The number of files that other threads may open at the same moment: some for all of them, and some for each thread.
 */
const sparedFiles = 16;
const filesPerThread = 4;

/**
 * Checks that enough files may be opened. Call it before native code that aborts the process when it cannot open a
 * file.
 * @throws JobError DISK if other threads could use up the limit of open files during that call
 */
export function refuseFewFiles(act: string, { limit, open } = openFiles(), cores = availableParallelism()): void {
  const needed = sparedFiles + filesPerThread * cores;
  if (limit - open < needed) {
    throw new JobError("DISK", `${act}: ${open} of at most ${limit} files are open, and ${needed} more must be free`, {
      hint: openFilesHint,
    });
  }
}

/** Returns how many files to open at once, of at most `most`, so that most of the limit stays free. */
export function filesAtOnce(most: number, { limit, open } = openFiles()): number {
  return Math.max(1, Math.min(most, Math.floor((limit - open) / 4)));
}
