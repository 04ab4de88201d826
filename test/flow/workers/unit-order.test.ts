import { setImmediate as turn, setTimeout as after } from "node:timers/promises";
import type { ReadBatch } from "#src/flow/pack/packer.js";
import type { ReadCall, ReleasedRows, SentRows } from "#src/flow/workers/protocol.js";
import { openUnitPool } from "#src/flow/workers/unit-pool.js";
import type { ParquetUnit } from "#src/formats/parquet/units.js";
import type { ToClient, ToServer, WorkerPort } from "#src/base/rpc.js";
import { expect, test } from "vitest";
import { emptyContract } from "../../support/batches.js";
import { randomOf } from "../../support/random.js";
import { plenty } from "../../support/memory.js";

const request = { projection: emptyContract, constants: new Map(), removed: new Uint32Array(0), limits: plenty };
const common = { format: "parquet", path: "a.parquet", columns: [] } as const;

/** A thread that makes rows of nothing, some at a time, at its own pace, and waits when it holds too many. */
function paced(random: () => number, heldLimit: number): WorkerPort {
  const heard: ((message: unknown) => void)[] = [];
  const hear = (message: ToClient): void => {
    for (const one of heard) {
      one(message);
    }
  };
  let held = 0;
  const isFull = (): boolean => held > heldLimit;
  const waiting: (() => void)[] = [];
  let queue = Promise.resolve();
  const pause = async (): Promise<void> => {
    for (let turns = Math.floor(random() * 4); turns > 0; turns -= 1) {
      await turn();
    }
  };
  const serveUnit = async (id: number, rowStart: number, rowEnd: number): Promise<void> => {
    for (let row = rowStart; row < rowEnd; row += 1) {
      await pause();
      const batch = { rowCount: 1, inputs: [], carried: [] };
      hear({ rpc: "item", id, body: { rowStart: row, batch, buffers: [], bytes: 1 } satisfies SentRows });
      held += 1;
      while (isFull()) {
        await new Promise<void>((resolve) => waiting.push(resolve));
      }
    }
    hear({ rpc: "result", id, body: undefined });
  };
  return {
    postMessage(message) {
      const told = message as ToServer;
      if (told.rpc === "call") {
        const { rowStart, rowEnd } = (told.body as ReadCall).unit;
        queue = queue.then(() => serveUnit(told.id, rowStart, rowEnd));
      } else if (told.rpc === "notice") {
        held -= (told.body as ReleasedRows).bytes;
        for (const wake of waiting.splice(0)) {
          wake();
        }
      }
    },
    on(event, listener) {
      heard.push(...(event === "message" ? [listener] : []));
    },
  };
}

function cutGroups(random: () => number, groups: number): ParquetUnit[] {
  const units: ParquetUnit[] = [];
  for (let group = 0; group < groups; group += 1) {
    const groupStart = units.at(-1)?.rowEnd ?? 0;
    for (let parts = 1 + Math.floor(random() * 6); parts > 0; parts -= 1) {
      const rowStart = units.at(-1)?.rowEnd ?? 0;
      units.push({
        ...common,
        rowStart,
        rowEnd: rowStart + 1 + Math.floor(random() * 4),
        groupStart,
        group: String(groupStart),
      });
    }
  }
  return units;
}

test("rows that are due never wait behind later ones in a thread that is full of them", async () => {
  const random = randomOf(23);
  for (let round = 0; round < 150; round += 1) {
    const lines = Array.from({ length: 1 + Math.floor(random() * 4) }, () => paced(random, Math.floor(random() * 4)));
    const threads = openUnitPool(lines);
    const units = cutGroups(random, 2 + Math.floor(random() * 8));
    const second = Math.floor(random() * units.length);
    // The next window is begun when the first rows of the one before have come.
    const windows = [units.slice(0, second), units.slice(second)].filter(({ length }) => length > 0);
    let due = 0;
    const started = windows.map((window) => threads.read(window, request));
    const begun: Promise<IteratorResult<ReadBatch, number>>[] = [];
    for (const [index, batches] of started.entries()) {
      for (let next = begun[index] ?? batches.next(); ; next = batches.next()) {
        const step = await Promise.race([next, after(5000, undefined, { ref: false })]);
        if (step === undefined) {
          throw new Error(`round ${round}: nothing came where row ${due} was due`);
        }
        const following = started[index + 1];
        if (following !== undefined) {
          begun[index + 1] ??= following.next();
        }
        if (step.done === true) {
          break;
        }
        due += step.value.rowCount;
      }
    }
    expect(due).toBe(units.at(-1)?.rowEnd);
  }
});
