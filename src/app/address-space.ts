import { JobError } from "../util/errors.js";
import { type ReadText, readText } from "./read-text.js";

const gib = 1024 ** 3;
/** With one thread that scores; V8 and native libraries reserve far more than they use. Measured: 1.95 GiB. */
const leastBytes = 2 * gib;
/** Without threads that score, and for each of them. Measured: 1.95 GiB with 1, 3.9 with 4, 6.0 with 8, 10.2 with 16. */
const baseBytes = 1.5 * gib;
const threadBytes = 0.625 * gib;

/** What `ulimit -v` leaves this process: bytes of addresses, used or not. Infinite where nothing limits them. */
export function addressSpaceBytes(read: ReadText = readText): number {
  const [, bytes] = /^Max address space +(\d+) /m.exec(read("/proc/self/limits") ?? "") ?? [];
  return bytes === undefined ? Number.POSITIVE_INFINITY : Number(bytes);
}

/** Threads that score, of whom a limit of addresses leaves room for; at least 1. */
export function threadsWithin(bytes: number): number {
  return Math.max(1, Math.floor((bytes - baseBytes) / threadBytes));
}

/** Whether a thread could be started: where V8 gets no addresses for one, it aborts the process, with 133 or 134. */
export function hasRoomForThreads(bytes = addressSpaceBytes()): boolean {
  return bytes >= leastBytes;
}

/** To be called before a thread is started. @throws JobError USAGE where `ulimit -v` leaves it no room */
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
