import { JobError } from "../util/errors.js";
import { type ReadText, readText } from "./read-text.js";

const gib = 1024 ** 3;
/**
 * What a process with one scoring thread needs; V8 and native libraries reserve far more than they use. Measured: 1.95
 * GiB.
 */
const leastBytes = 2 * gib;
/**
 * What a process needs without scoring threads, and what each adds. Measured: 1.95 GiB with 1, 3.9 with 4, 6.0 with 8,
 * 10.2 with 16.
 */
const baseBytes = 1.5 * gib;
const threadBytes = 0.625 * gib;

/** Returns the address space that `ulimit -v` leaves this process, in bytes; infinite if there is no limit. */
export function addressSpaceBytes(read: ReadText = readText): number {
  const [, bytes] = /^Max address space +(\d+) /m.exec(read("/proc/self/limits") ?? "") ?? [];
  return bytes === undefined ? Number.POSITIVE_INFINITY : Number(bytes);
}

/** Returns how many scoring threads fit into an address space; at least 1. */
export function threadsWithin(bytes: number): number {
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
        hint: "ulimit -v counts addresses, most of which are never used: take it away (ulimit -v unlimited), and limit memory by a control group: MemoryMax= in systemd, --memory in Docker, limits in Kubernetes",
      },
    );
  }
}
