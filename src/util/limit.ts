/** Makes a function that runs at most `limit` tasks at once, in the order of the calls. */
export function createLimit(limit: number): <T>(work: () => Promise<T>) => Promise<T> {
  const waiting: (() => void)[] = [];
  let free = limit;
  return async (work) => {
    if (free > 0) {
      free -= 1;
    } else {
      await new Promise<void>((resolve) => {
        waiting.push(resolve);
      });
    }
    try {
      return await work();
    } finally {
      const next = waiting.shift();
      if (next === undefined) {
        free += 1;
      } else {
        next();
      }
    }
  };
}
