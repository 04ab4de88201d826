import { setFlagsFromString } from "node:v8";

/** What it is while rows are scored, and V8's own. */
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

/** What has run three times as long as usual is optimised (docs/decisions/startup.md). Later versions have other flags. */
const budget: Flag = { scoring: "--interrupt-budget=400000", usual: "--interrupt-budget=67584" };

/** By then all is loaded that most runs need. */
const laterMs = 500;

/**
 * From a little after all threads have started, until they are about to end. V8 takes no code that was made with other
 * flags, neither ours that is kept nor Node's of its own modules, of which the main thread loads some while it starts
 * and each other thread many: without their code it starts twice as slowly (docs/decisions/startup.md).
 * @param started when they have
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
  started.then(begin, () => undefined); // an engine that cannot be opened: whoever asked for it is told
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
