import { readFileSync } from "node:fs";
import { availableParallelism, totalmem } from "node:os";
import { dirname, join } from "node:path";
import { JobError, errnoOf, firstError, isOutOfFiles, messageOf } from "../base/errors.js";
import { mebibytes } from "../base/memory-budget.js";
import { openFilesHint } from "../duckdb/instance.js";

type ReadText = (path: string) => string | undefined;

function readText(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return undefined; // not Linux, or no permission
  }
}

const gib = 1024 ** 3;
/** Of one scoring thread. V8 and native libraries reserve far more than they use. Measured: 1.95 GiB. */
const leastBytes = 2 * gib;
/** Without scoring threads, and what each adds. Measured: 1.95 GiB with 1 thread, 3.9 with 4, 6.0 with 8, 10.2 with 16. */
const baseBytes = 1.5 * gib;
const threadBytes = 0.625 * gib;

/** Returns the address space that `ulimit -v` leaves this process, in bytes; infinite if there is no limit. */
export function addressSpaceBytes(read: ReadText = readText): number {
  const [, bytes] = /^Max address space +(\d+) /m.exec(read("/proc/self/limits") ?? "") ?? [];
  return bytes === undefined ? Number.POSITIVE_INFINITY : Number(bytes);
}

function threadsWithin(bytes: number): number {
  return Math.max(1, Math.floor((bytes - baseBytes) / threadBytes));
}

/** Whether a thread can be started. V8 aborts the process (133, 134) if it gets no address space for one. */
export function hasRoomForThreads(bytes = addressSpaceBytes()): boolean {
  return bytes >= leastBytes;
}

/** Must be called before a thread is started. @throws JobError USAGE if `ulimit -v` leaves too little address space */
export function refuseSmallAddressSpace(bytes = addressSpaceBytes()): void {
  if (!hasRoomForThreads(bytes)) {
    const found = (bytes / gib).toFixed(1);
    throw new JobError(
      "USAGE",
      `starting threads: ulimit -v leaves ${found} GiB of addresses, and scoring reserves at least ${leastBytes / gib} GiB`,
      {
        hint: "ulimit -v counts addresses, most of which are never used: remove the limit (ulimit -v unlimited), and limit memory by a control group: MemoryMax= in systemd, --memory in Docker, limits in Kubernetes",
      },
    );
  }
}

/**
 * The fewest of CPU affinity, cgroup quotas, and threads that `ulimit -v` allows: Node below 22 knows only affinity.
 */
export function usableCores(available = availableParallelism(), read: ReadText = readText): number {
  const threads = threadsWithin(addressSpaceBytes(read));
  const quotas = controlGroups("cpu", read).flatMap((group) => quotaOf(group, read));
  return Math.max(1, Math.min(available, threads, ...quotas.map((quota) => Math.ceil(quota))));
}

/** The budget leaves the rest to Node, ONNX Runtime, DuckDB and the model, which take 250 MiB before the first row. */
const budgetShare = 1 / 4;
/** The smallest memory budget of a job. */
export const minBudgetBytes = mebibytes(64);
/** More memory than this does not make a job faster: all of its threads have what they can use. */
const maxBudgetBytes = mebibytes(384);
const maxBudgetBytesPerCore = mebibytes(64);

/** A part of the machine's memory or the control group's limit, for a spec without `engine.memory`. */
export function defaultMemory(cores: number, machineBytes = totalmem(), read: ReadText = readText): number {
  const usableBytes = usableMemory(machineBytes, read);
  const most = maxBudgetBytes + cores * maxBudgetBytesPerCore;
  return Math.max(minBudgetBytes, Math.min(most, Math.floor(usableBytes * budgetShare)));
}

/** Of the memory that this process may use, the part that rows of an earlier run may take in addition to the budget. */
const storedRowsShare = 1 / 8;

/** Returns how many bytes rows whose predictions are reused may take, for a job whose spec has no `engine.memory`. */
export function storedRowsMemory(machineBytes = totalmem(), read: ReadText = readText): number {
  return Math.floor(usableMemory(machineBytes, read) * storedRowsShare);
}

function usableMemory(machineBytes: number, read: ReadText): number {
  const limits = controlGroups("memory", read).flatMap((group) => memoryLimitOf(group, read));
  return Math.min(machineBytes, ...limits);
}

/** A control group that this process is in, or one above it: the folder with its files. */
interface ControlGroup {
  readonly version: 1 | 2;
  readonly folder: string;
}

/** Some of their folders may not exist. See cgroups(7). */
function controlGroups(resource: string, read: ReadText): ControlGroup[] {
  return (read("/proc/self/cgroup") ?? "").split("\n").flatMap((line) => groupsOf(line, resource));
}

function groupsOf(line: string, resource: string): ControlGroup[] {
  const [, controllers, path] = /^\d+:([^:]*):(\/.*)$/.exec(line) ?? [];
  if (controllers === undefined || path === undefined) {
    return [];
  }
  if (controllers === "") {
    // Version 2 is mounted below /unified if both versions are mounted.
    return foldersAbove(path).flatMap((folder) =>
      ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map((root) => ({ version: 2, folder: join(root, folder) }) as const),
    );
  }
  // A container may see its own group at the root, under another name than outside.
  return controllers.split(",").includes(resource)
    ? foldersAbove(path).map((folder) => ({ version: 1, folder: join("/sys/fs/cgroup", controllers, folder) }) as const)
    : [];
}

/** "/a/b", "/a", "/" */
function foldersAbove(path: string): string[] {
  return path === "/" ? ["/"] : [path, ...foldersAbove(dirname(path))];
}

function quotaOf({ version, folder }: ControlGroup, read: ReadText): number[] {
  if (version === 2) {
    // "max 100000", "200000 100000"
    const [quota, period] = (read(join(folder, "cpu.max")) ?? "").trim().split(" ");
    return ratio(quota, period);
  }
  return ratio(read(join(folder, "cpu.cfs_quota_us")), read(join(folder, "cpu.cfs_period_us"))); // -1 means no limit
}

function ratio(quotaText: string | undefined, periodText: string | undefined): number[] {
  const quota = Number(quotaText);
  const period = Number(periodText);
  return quota > 0 && period > 0 ? [quota / period] : [];
}

/** Without a limit, version 2 says "max", and version 1 a number that is larger than any machine's memory. */
function memoryLimitOf({ version, folder }: ControlGroup, read: ReadText): number[] {
  const text = read(join(folder, version === 2 ? "memory.max" : "memory.limit_in_bytes"));
  const bytes = Number((text ?? "").trim());
  return bytes > 0 ? [bytes] : [];
}

/** The one that came first, if closing failed, too; and what `machineError` makes of it. */
export function finalError(thrown: unknown): unknown {
  const first = firstError(thrown);
  return machineError(first) ?? first;
}

/** 75 for too many open files, 64 for a native library that is missing. undefined: it failed for another reason. */
export function machineError(error: unknown): JobError | undefined {
  return openFilesError(error) ?? missingLibraryError(error);
}

/** How messages of Node, its threads and C libraries say it. A value that a message quotes is never at these places. */
const openFilesText = /^E[MN]FILE: |: E[MN]FILE$|: Too many open files(?: in system)?$/;

/** Threads and native libraries fail if too many files are open, too; some report it by a text alone. */
function openFilesError(error: unknown): JobError | undefined {
  const cause = causeOf(
    error,
    (one) => isOutOfFiles(one) || (!(one instanceof JobError) && openFilesText.test(one.message)),
  );
  if (cause === undefined) {
    return undefined;
  }
  const doing =
    error instanceof JobError ? error.message : `opening a file: too many are open already (${messageOf(cause)})`;
  return new JobError("DISK", doing, {
    hint: openFilesHint,
    cause: error,
  });
}

/** Each native library is a package per platform, of which `npm ci` installs the one of its own platform. */
const libraries = [
  { name: "DuckDB", text: /@duckdb\/node-bindings|duckdb native binding|duckdb\.node/ },
  { name: "ONNX Runtime", text: /onnxruntime/ },
] as const;
const libraryErrors: ReadonlySet<string | undefined> = new Set(["MODULE_NOT_FOUND", "ERR_DLOPEN_FAILED"]);

function missingLibraryError(error: unknown): JobError | undefined {
  const cause = causeOf(
    error,
    (one) => libraryErrors.has(errnoOf(one)) || one.message.startsWith("Error loading duckdb"),
  );
  const [said = ""] = cause?.message.split("\n", 1) ?? [];
  const library = libraries.find(({ text }) => text.test(said));
  if (cause === undefined || library === undefined) {
    return undefined;
  }
  const platform = `${process.platform}-${process.arch}`;
  const found = errnoOf(cause) === "ERR_DLOPEN_FAILED" ? `cannot be loaded (${said})` : "is not installed";
  return new JobError("USAGE", `loading ${library.name}: its native library for ${platform} ${found}`, {
    hint: `run \`npm ci\` on this machine, with optional dependencies: packages that were installed on another platform (CPU, operating system, C library) have no library for ${platform}`,
    cause: error,
  });
}

function causeOf(error: unknown, isIt: (cause: Error) => boolean): Error | undefined {
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    if (isIt(cause)) {
      return cause;
    }
  }
  return undefined;
}
