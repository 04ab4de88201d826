import { errnoOf, JobError } from "./errors.js";

/** One end of a channel between two threads, as Node's workers and message ports have it. */
export interface WorkerPort {
  postMessage(message: unknown, transfer?: readonly object[]): void;
  /**
   * `message`; `close` or `exit`: the other end is gone; `error`: it broke; `messageerror`: a message did not arrive
   * whole.
   */
  on(event: string, hear: (message: unknown) => void): unknown;
}

/**
 * The error to end with when a worker thread broke: MEMORY where its heap reached its limit, which Node sets for each
 * thread; any other reason is a bug.
 * @param doing what the thread did, as messages begin
 */
export function brokenThread(doing: string, cause: unknown): Error {
  return errnoOf(cause) === "ERR_WORKER_OUT_OF_MEMORY"
    ? new JobError("MEMORY", `${doing}: a worker thread reached its memory limit`, {
        hint: "give each thread of Node more memory, such as NODE_OPTIONS=--max-old-space-size=8192 (MiB), or lower engine.batch_size; then run the same command again",
        cause,
      })
    : new Error(`${doing}: a worker thread broke`, { cause });
}

/** Resolves when a worker has ended, whether it broke or not. */
export async function untilExit(worker: WorkerPort): Promise<void> {
  worker.on("error", () => {}); // one that nobody listens for would end this process; the exit follows
  await new Promise<void>((resolve) => {
    worker.on("exit", () => {
      resolve();
    });
  });
}
