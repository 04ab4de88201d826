import type { LookAtPaid, Price } from "../paid-engine.js";
import { count, nothingSpent, readKept } from "./kept-answers.js";

/** Adds up the answers that a run has kept. */
export function lookAtRun(price: Price | undefined): LookAtPaid {
  return async (kept) => {
    const sum = nothingSpent();
    for await (const { answer } of readKept({ read: () => kept })) {
      count(sum, answer);
    }
    return { kept: sum, price };
  };
}
