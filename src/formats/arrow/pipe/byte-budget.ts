/** Bounds what is held, in bytes. */
export interface ByteBudget {
  /** Waits until what is held leaves room, or nothing is held. */
  take(bytes: number): Promise<void>;
  free(bytes: number): void;
  /** Whoever waits need not any more. */
  close(): void;
}

export function createByteBudget(limit: number): ByteBudget {
  let used = 0;
  let closed = false;
  let wake: (() => void) | undefined;
  const change = (): void => {
    wake?.();
    wake = undefined;
  };
  return {
    async take(bytes) {
      const mustWait = (): boolean => used > 0 && used + bytes > limit && !closed;
      while (mustWait()) {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      }
      used += bytes;
    },
    free(bytes) {
      used -= bytes;
      change();
    },
    close() {
      closed = true;
      change();
    },
  };
}
