import { getHeapStatistics, setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

const lookSeconds = 0.5;
const everySeconds = 5;
/** More than the young part of a heap, which V8 looks after. */
const grownBytes = 48 * 1024 * 1024;

/**
 * Collects all of the main thread's garbage every few seconds, and sooner when its heap has grown a lot. V8 does so when
 * the old part of a heap has grown to four times what lives in it: a run over 100,000 shards is done before that.
 * Meanwhile dead objects hold buffers and DuckDB's results, which V8 counts for little or nothing (docs/decisions/startup.md).
 */
export function collectGarbage({ seconds = everySeconds } = {}): Disposable {
  let collect: (() => void) | undefined;
  let left = usedBytes();
  let last = performance.now();
  const timer = setInterval(() => {
    if (performance.now() - last >= seconds * 1000 || usedBytes() - left > grownBytes) {
      collect ??= exposedCollector();
      collect();
      left = usedBytes();
      last = performance.now();
    }
  }, Math.min(lookSeconds, seconds) * 1000).unref();
  return {
    [Symbol.dispose]() {
      clearInterval(timer);
    },
  };
}

function usedBytes(): number {
  return getHeapStatistics().used_heap_size;
}

/** Node has no function of its own for it. */
function exposedCollector(): () => void {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  setFlagsFromString("--no-expose-gc"); // code that is kept is for the flags that a process begins with
  return collect;
}
