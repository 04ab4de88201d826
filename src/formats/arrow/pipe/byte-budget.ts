import { createCondition } from "../../../util/condition.js";

/** Bounds how many bytes are held at once. */
export interface ByteBudget {
  /** Waits until so many bytes fit into the limit, or none are held. */
  take(bytes: number): Promise<void>;
  free(bytes: number): void;
  /** Ends all waiting. From then on, the budget is not limited. */
  close(): void;
}

export function createByteBudget(limit: number): ByteBudget {
  let used = 0;
  let closed = false;
  const changed = createCondition();
  const fits = (bytes: number): boolean => used === 0 || used + bytes <= limit || closed;
  return {
    async take(bytes) {
      while (!fits(bytes)) {
        await changed.wait();
      }
      used += bytes;
    },
    free(bytes) {
      used -= bytes;
      changed.notify();
    },
    close() {
      closed = true;
      changed.notify();
    },
  };
}
