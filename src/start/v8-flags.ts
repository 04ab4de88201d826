/**
 * Takes the heap's garbage in one go when it is due, instead of step by step. Ours is a few megabytes of objects that
 * hold hundreds of megabytes of buffers, so marking all of it takes milliseconds; but V8 begins each round early, for
 * the bytes of the buffers, and the rounds together took a tenth of a job's CPU time (docs/decisions.md, 67).
 *
 * And optimises what has run three times as long as by default: loops over rows soon have, and what runs while a job
 * starts need not be (docs/decisions.md, 101). Later versions than that of Node 20 have other flags.
 *
 * And keeps the code of functions that have not run for a while: it is what the next process starts with.
 */
export function setV8Flags(): void {
  const { setFlagsFromString } = process.getBuiltinModule("node:v8"); // here: other threads need none of it
  setFlagsFromString("--no-incremental-marking");
  setFlagsFromString("--no-flush-bytecode");
  if (process.versions.v8.startsWith("11.")) {
    setFlagsFromString("--interrupt-budget=400000");
  }
}
