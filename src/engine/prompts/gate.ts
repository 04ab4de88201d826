/** Stops all requests of an attempt at the first error that ends it: each of them would cost money. */
export interface Gate {
  /** Closes with an error, unless it is closed. */
  close(error: unknown): void;
  /** @throws the error that it was closed with */
  requireOpen(): void;
}

export function createGate(): Gate {
  let closed: { readonly error: unknown } | undefined;
  return {
    close(error) {
      closed ??= { error };
    },
    requireOpen() {
      if (closed !== undefined) {
        throw closed.error;
      }
    },
  };
}
