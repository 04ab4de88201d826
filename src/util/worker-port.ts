/** One end of a channel between two threads, as Node's workers and message ports have it. */
export interface WorkerPort {
  postMessage(message: unknown, transfer?: readonly ArrayBuffer[]): void;
  /**
   * `message`; `close` or `exit`: the other end is gone; `error`: it broke; `messageerror`: a message did not arrive
   * whole.
   */
  on(event: string, hear: (message: unknown) => void): unknown;
}
