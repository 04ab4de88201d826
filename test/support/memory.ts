import { mebibytes, memoryBudget } from "#src/base/memory-budget.js";

/** What a machine with two cores and memory to spare gives a job. */
export const plenty = memoryBudget(mebibytes(512));
