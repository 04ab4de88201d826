import { setFlagsFromString } from "node:v8";

/** A flag of V8: its value while rows are scored, and its default. */
interface Flag {
  readonly scoring: string;
  readonly usual: string;
}

const flags: readonly Flag[] = [
  // Garbage is marked in one go when it is due, instead of step by step. Our heap is a few megabytes of objects that
  // hold hundreds of megabytes of buffers, so marking all of it takes milliseconds; but V8 begins each round early, for
  // the bytes of the buffers, and the rounds together took a tenth of a job's CPU time (docs/decisions/startup.md).
  { scoring: "--no-incremental-marking", usual: "--incremental-marking" },
  // Functions that have not run for a while keep their code: it is what the next process starts with.
  { scoring: "--no-flush-bytecode", usual: "--flush-bytecode" },
];

/**
 * V8 optimises a function after three times as much work as usual (docs/decisions/startup.md). Later versions have
 * other flags.
 */
const budget: Flag = { scoring: "--interrupt-budget=400000", usual: "--interrupt-budget=67584" };

/** Most runs have loaded all their code by then. */
const laterMs = 500;

/**
 * Sets the flags a little after all threads have started, and resets them before the threads end. V8 rejects cached
 * code that was compiled with other flags, ours and that of Node's own modules, which each thread loads while it
 * starts; without cached code a thread starts half as fast (docs/decisions/startup.md).
 * @param started resolves when all threads have started
 */
export function setScoringFlags(started: Promise<unknown>): Disposable {
  const all = process.versions.v8.startsWith("11.3.") ? [...flags, budget] : flags;
  let timer: NodeJS.Timeout | undefined;
  let isOver = false;
  let isSet = false;
  const set = (): void => {
    isSet = true;
    for (const { scoring } of all) {
      setFlagsFromString(scoring);
    }
  };
  const begin = (): void => {
    timer = isOver ? undefined : setTimeout(set, laterMs).unref();
  };
  started.then(begin, () => undefined); // the next call of the engine throws it
  return {
    [Symbol.dispose]() {
      isOver = true;
      clearTimeout(timer);
      if (isSet) {
        for (const { usual } of all) {
          setFlagsFromString(usual);
        }
      }
    },
  };
}
