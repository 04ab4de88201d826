import { MessageChannel } from "node:worker_threads";
import { expect, test } from "vitest";
import type { Unit } from "#src/formats/format.js";
import type { UnitFailure } from "#src/flow/workers/protocol.js";
import { openUnitPool } from "#src/flow/workers/unit-pool.js";
import { serveUnits } from "#src/flow/workers/unit-server.js";
import { emptyContract } from "../../support/batches.js";
import { plenty } from "../../support/memory.js";

const unit: Unit = { format: "parquet", rowStart: 0, rowEnd: 10, group: undefined };
const request = { projection: emptyContract, constants: new Map(), removed: new Uint32Array(0), limits: plenty };

/** What is told of a unit that a worker reads by `read`; undefined: the worker has ended. No row may come. */
async function failuresOf(read: (() => never) | undefined): Promise<UnitFailure[]> {
  const { port1, port2 } = new MessageChannel();
  if (read === undefined) {
    port2.close();
  } else {
    serveUnits(port2, { openReader: () => ({ read, close() {} }) });
  }
  const told: UnitFailure[] = [];
  const pool = openUnitPool([port1], { onFailure: (failure) => told.push(failure) });

  const step = await pool.read([unit], request).next();

  expect(step).toEqual({ done: true, value: 0 });
  port1.close();
  return told;
}

test.each([
  ["unsupported", "bytes that only the decoder reads", new RangeError("a page of encoding 9")],
  ["file", "a file that cannot be opened", Object.assign(new Error("no"), { code: "EACCES", syscall: "open" })],
  ["defect", "a defect of the program", new TypeError("x is not a function")],
  ["defect", "a wrong argument of Node's", Object.assign(new TypeError("no"), { code: "ERR_INVALID_ARG_TYPE" })],
])("a worker that cannot read a unit says why: %s, of %s", async (kind, _what, error) => {
  const told = await failuresOf(() => {
    throw error;
  });
  expect(told).toMatchObject([{ kind }]);
  expect(told[0]?.message).toContain(error.message);
});

test("a unit whose worker has ended is reported once", async () => {
  expect(await failuresOf(undefined)).toMatchObject([{ kind: "worker_gone" }]);
});

test("a unit that ends early without a reason is a defect", async () => {
  const { port1, port2 } = new MessageChannel();
  serveUnits(port2, { openReader: () => ({ read: () => [], close() {} }) });
  const told: UnitFailure[] = [];
  const pool = openUnitPool([port1], { onFailure: (failure) => told.push(failure) });

  await pool.read([unit], request).next();

  expect(told).toMatchObject([{ kind: "defect", message: "the rows of a unit end with row 0, 10 were due" }]);
  port1.close();
});
