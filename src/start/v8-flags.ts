import { setFlagsFromString } from "node:v8";

/**
 * V8's flags for the whole life of the program, for each of its threads (docs/decisions/startup.md):
 *
 * - Garbage is marked in one pass when it is due, and not concurrently with the program. Our heap is a few megabytes of
 *   objects that hold hundreds of megabytes of buffers, so marking all of it takes milliseconds; but V8 begins each
 *   round early, for the bytes of the buffers. `serve` has objects of requests, and would stand still for 30 ms.
 * - Functions that have not run for a while keep their code: it is what the next process starts with.
 * - `gc` is there for cli/collect-garbage.ts.
 * - V8 of Node 20 optimises a function after six times as much work as usual. Later versions have other flags.
 *
 * @public so that tests run with them
 */
export const v8Flags: readonly string[] = [
  "--no-incremental-marking",
  "--no-flush-bytecode",
  "--expose-gc",
  ...(process.versions.v8.startsWith("11.3.") ? ["--interrupt-budget=400000"] : []),
];

/**
 * Sets V8's flags for a command. Only the first lines of the program may do so, while it has one thread, with next to
 * nothing on its heap: V8 may crash if a flag changes while garbage is being marked. The code cache is valid for these
 * flags only.
 */
export function setFlagsAtStart(command: string): void {
  for (const flag of v8Flags) {
    if (flag !== "--no-incremental-marking" || command !== "serve") {
      setFlagsFromString(flag);
    }
  }
}
