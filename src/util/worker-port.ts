import { errnoOf, JobError } from "./errors.js";

/** One end of a channel between two threads: a worker or a message port of Node. */
export interface WorkerPort {
  postMessage(message: unknown, transfer?: readonly object[]): void;
  /**
   * Listens to an event: `message`; `close` or `exit` (the other end is gone); `error` (it broke); `messageerror` (a
   * message could not be read).
   */
  on(event: string, listener: (message: unknown) => void): unknown;
}

/**
 * Returns the error to end with when a worker thread broke: MEMORY if its heap reached the limit that Node sets for
 * each thread; any other reason is a bug.
 * @param doing the act that the message begins with
 */
export function brokenThread(doing: string, cause: unknown): Error {
  return errnoOf(cause) === "ERR_WORKER_OUT_OF_MEMORY"
    ? new JobError("MEMORY", `${doing}: a worker thread reached its memory limit`, {
        hint: "give each thread of Node more memory, such as NODE_OPTIONS=--max-old-space-size=8192 (MiB), or lower engine.batch_size; then run the same command again",
        cause,
      })
    : new Error(`${doing}: a worker thread broke`, { cause });
}

/** Resolves when a worker has ended, whether it broke or not; of a message port, when it is closed. */
export async function untilExit(worker: WorkerPort): Promise<void> {
  worker.on("error", () => {}); // without a listener, the error would end this process; the exit follows
  await new Promise<void>((resolve) => {
    for (const event of ["exit", "close"]) {
      worker.on(event, () => {
        resolve();
      });
    }
  });
}
