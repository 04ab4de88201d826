import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, test } from "vitest";
import { encodeTexts, type NamedTensor } from "#src/columnar/tensor.js";
import { sendingPass } from "#src/engine/prompts/batch/passes.js";
import type { BatchState } from "#src/engine/prompts/batch/run-batches.js";
import { createSubmitter } from "#src/engine/prompts/batch/submit.js";
import { createBudget, type Reservation } from "#src/engine/prompts/budget.js";
import type { BulkPass } from "#src/engine/paid-engine.js";
import { createKeySet } from "#src/engine/prompts/texts/key-set.js";
import { torture } from "../../../support/torture.js";

/** A pass over rows whose batches all stay under way, and how many reservations are open. */
function endlessPass(requests: number): { readonly pass: BulkPass; readonly open: () => number } {
  let [open, created] = [0, 0];
  const limits = { tokens: 1e12, cost: undefined, costPerHour: undefined };
  const budget = createBudget({ doing: "", limits, price: undefined, nowMs: () => 0, sleep: () => Promise.resolve() });
  const counted = (reservation: Reservation | undefined): Partial<Reservation> => {
    open += 1;
    const end = (): void => {
      open -= 1;
      reservation?.end();
    };
    return { ...reservation, end };
  };
  const state = {
    prompts: {
      task: { kind: "chat", text: { texts: ["", ""], columns: ["body"] }, sampling: { max_tokens: 10 } },
      servers: [{ model: "m", url: "http://localhost", retry: { nowMs: () => 0, maxSeconds: 1 } }],
      form: { isStructured: false, tokensKey: "max_tokens" },
      tries: 1,
      answers: { find() {} },
      budget: {
        ...budget,
        tryReserve: (worst: never) => counted(budget.tryReserve(worst)),
        reserveSent: (worst: never) => counted(budget.reserveSent(worst)),
      },
    },
    api: {
      batches: () => Promise.resolve([]),
      files: () => Promise.resolve([]),
      upload: () => Promise.resolve(`file ${created}`),
      create: () => Promise.resolve({ id: String((created += 1)), status: "in_progress" }),
    },
    run: { runId: "run", planId: "plan", log() {} },
    limits: { requests, bytes: 1e9 },
    files: new Map(),
    live: new Map(),
    underWay: createKeySet(),
    refused: new Map(),
    faults: new Map(),
  } as unknown as BatchState;
  return { pass: sendingPass(state, createSubmitter(state)), open: () => open };
}

const rowOf = (id: number): NamedTensor[] => [
  { name: "body", dtype: "string", dims: [1, 1], data: encodeTexts([`text ${id}`]) },
];

test("requests under way hold one reservation a file", async () => {
  const { pass, open } = endlessPass(20);
  for (let id = 0; id < 65; id += 1) {
    await pass.add(rowOf(id));
  }
  expect(open()).toBe(3 + 5); // three files are sent, and five requests are not
});

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

/** Bytes that are in use, those of typed arrays included. */
function usedBytes(): number {
  collectGarbage();
  collectGarbage(); // array buffers are freed in the background of the first one
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
}

test.runIf(torture)("a million requests under way take less than 30 MB of memory", { timeout: 300_000 }, async () => {
  const { pass, open } = endlessPass(50_000);
  const before = usedBytes();
  for (let id = 0; id <= 1_000_000; id += 1) {
    await pass.add(rowOf(id));
  }
  const grown = usedBytes() - before;
  console.log(`memory grew by ${Math.round(grown / 1e6)} MB`);
  await pass.add(rowOf(0)); // it holds what is measured
  expect([open(), grown < 30e6]).toEqual([20 + 1, true]);
});
