import { getHeapStatistics } from "node:v8";
import { runInNewContext } from "node:vm";

const pollSeconds = 0.5;
const intervalSeconds = 5;
/** Growth of the heap that triggers a collection; more than its young generation, which V8 collects by itself. */
const growthBytes = 48 * 1024 * 1024;

/**
 * Collects the main thread's garbage every few seconds, and sooner when its heap has grown a lot. V8 would wait until the
 * old generation has grown to four times its live size, and a run over 100,000 shards is over before that. Meanwhile dead
 * objects hold buffers and DuckDB results, which V8 counts for little or nothing (docs/decisions/startup.md).
 */
export function collectGarbage({ seconds = intervalSeconds } = {}): Disposable {
  let collect: (() => void) | undefined;
  let usedAfterLast = usedBytes();
  let last = performance.now();
  const timer = setInterval(() => {
    if (performance.now() - last >= seconds * 1000 || usedBytes() - usedAfterLast > growthBytes) {
      collect ??= exposedCollector();
      collect();
      usedAfterLast = usedBytes();
      last = performance.now();
    }
  }, Math.min(pollSeconds, seconds) * 1000).unref();
  return {
    [Symbol.dispose]() {
      clearInterval(timer);
    },
  };
}

function usedBytes(): number {
  return getHeapStatistics().used_heap_size;
}

/**
 * V8's `gc` function, which start/v8-flags.ts exposes: contexts that are made from then on have it. It does nothing where
 * the modules run without the loader of the program, which sets the flags.
 */
function exposedCollector(): () => void {
  return runInNewContext("typeof gc === 'function' ? gc : () => undefined") as () => void;
}
