import { truncate } from "node:fs/promises";
import { join } from "node:path";
import { MessageChannel } from "node:worker_threads";
import { describe, expect, test, vi } from "vitest";
import type { ToClient, ToServer, WorkerPort } from "#src/base/rpc.js";
import type { ReadBatch } from "#src/flow/pack/packer.js";
import type { SentRows, UnitRequest } from "#src/flow/workers/protocol.js";
import { openUnitPool, type UnitPool } from "#src/flow/workers/unit-pool.js";
import { serveUnits } from "#src/flow/workers/unit-server.js";
import { readParquetFooter } from "#src/formats/parquet/footer.js";
import { type ParquetUnit, parquetUnits } from "#src/formats/parquet/units.js";
import { openUnitReader } from "#src/job/threads/serve-units.js";
import type { RunModel } from "#src/models/engine.js";
import { emptyContract, matrixBinding, ref } from "../../support/batches.js";
import { scratch } from "../../support/job.js";
import { plenty } from "../../support/memory.js";
import { writeRows } from "../../support/parquet.js";

interface Answer {
  rows(rows: SentRows): void;
  end(): void;
}

function scripted(answerCall: (answer: Answer) => void): { port: WorkerPort; heard: ToServer[] } {
  const heard: ToServer[] = [];
  let tell: ((message: unknown) => void) | undefined;
  const send = (message: ToClient): void => {
    setImmediate(() => {
      tell?.(message);
    });
  };
  const port: WorkerPort = {
    postMessage(message) {
      const received = message as ToServer;
      heard.push(received);
      if (received.rpc === "call") {
        const { id } = received;
        answerCall({
          rows(body) {
            send({ rpc: "item", id, body });
          },
          end() {
            send({ rpc: "result", id, body: undefined });
          },
        });
      }
    },
    on(event, listener) {
      tell = event === "message" ? listener : tell;
    },
  };
  return { port, heard };
}

const contract = {
  ...emptyContract,
  inputs: [matrixBinding(["x", "y"])],
  outputs: [{ kind: "scalar", column: "score", tensor: "score", type: "float32" }],
  passthrough: [{ column: "id", source: ref("id", "int64") }],
} as const;
const request: UnitRequest = {
  projection: contract,
  constants: new Map(),
  removed: new Uint32Array(0),
  limits: plenty,
};
const scoring = { contract, tensors: ["score"], batchRows: 1000 };

/** Row groups of 2,048 rows each: units of their own. */
async function writeShard(folder: string, rows: number, x = "id"): Promise<{ path: string; units: ParquetUnit[] }> {
  const path = join(folder, "a.parquet");
  const select = `SELECT range AS id, CAST(${x.replaceAll("id", "range")} AS FLOAT) AS x, CAST(1 AS FLOAT) AS y FROM range(${rows})`;
  await writeRows(path, select, "ROW_GROUP_SIZE 2048");
  return { path, units: await unitsOf(path, rows) };
}

async function unitsOf(path: string, rows: number): Promise<ParquetUnit[]> {
  const file = { path, name: path };
  return (
    parquetUnits(
      await readParquetFooter(file),
      { file, rowStart: 0, rowEnd: rows, projection: contract },
      { limits: plenty },
    ) ?? []
  );
}

interface Thread {
  readonly port: WorkerPort;
  close(): void;
}

/** A worker that serves units, as far as its port shows: it runs in this thread. */
function thread(run?: RunModel): Thread {
  const { port1, port2 } = new MessageChannel();
  serveUnits(port2, { openReader: openUnitReader, run });
  return {
    port: port1,
    close() {
      port1.close();
    },
  };
}

async function read(
  pool: UnitPool,
  units: readonly ParquetUnit[],
  asked = request,
  onBatch: (batch: ReadBatch) => void = () => undefined,
): Promise<{ ids: number[]; scores: number[]; reached: number }> {
  const [ids, scores]: [number[], number[]] = [[], []];
  const batches = pool.read(units, asked);
  for (;;) {
    const step = await batches.next();
    if (step.done === true) {
      return { ids, scores, reached: step.value };
    }
    const { carried, predictions } = step.value;
    const [column] = carried;
    ids.push(...(column?.kind === "fixed" ? Array.from(column.data as BigInt64Array, Number) : []));
    for (const { outputs } of predictions ?? []) {
      scores.push(...(outputs[0]?.dtype === "string" ? [] : Array.from(outputs[0]?.data as Float32Array)));
    }
    onBatch(step.value);
  }
}

const upTo = (rows: number): number[] => Array.from({ length: rows }, (_, row) => row);

const addUp: RunModel = async ({ inputs }) => {
  const [input] = inputs;
  const data = input?.data as Float32Array;
  const rows = input?.dims[0] ?? 0;
  const sums = Float32Array.from({ length: rows }, (_, row) => (data[row * 2] ?? 0) + 2 * (data[row * 2 + 1] ?? 0));
  return await Promise.resolve({ outputs: [{ dtype: "float32", dims: [rows], data: sums }], ms: 1 });
};

test("rows that threads decode come once and in order, also if a later thread is ahead", async () => {
  const { units } = await writeShard(scratch.path, 10_000);
  const two = [thread(), thread()];
  expect(units).toHaveLength(5);

  const found = await read(openUnitPool(two.map(({ port }) => port)), units);

  expect(found).toEqual({ ids: upTo(10_000), scores: [], reached: 10_000 });
  for (const one of two) {
    one.close();
  }
});

test("rows that threads decode end early if a thread ends, and no row comes twice", async () => {
  const { units } = await writeShard(scratch.path, 10_000);
  const one = thread();
  const threads = openUnitPool([one.port]);

  const found = await read(threads, units, request, () => {
    one.close();
  });

  expect(found.reached).toBeLessThan(10_000);
  expect(found.ids).toEqual(upTo(found.reached));
  expect(await read(threads, units)).toEqual({ ids: [], scores: [], reached: 0 }); // and no thread is asked again
});

test("rows that threads decode end with the file", async () => {
  const { path, units } = await writeShard(scratch.path, 10_000);
  await truncate(path, units[3]?.columns[0]?.start);
  const one = thread();

  const found = await read(openUnitPool([one.port]), units);

  expect(found).toEqual({ ids: upTo(3 * 2048), scores: [], reached: 3 * 2048 });
  one.close();
});

function unit(rowStart: number, rowEnd: number): ParquetUnit {
  return { format: "parquet", group: "0", path: "a.parquet", rowStart, rowEnd, groupStart: 0, columns: [] };
}

const batchOf = (rowCount: number): ReadBatch => ({ rowCount, inputs: [], carried: [] });

test.each([
  { what: "leaves rows out", rows: [{ rowStart: 4, rowCount: 6 }], reached: 0, came: [] },
  {
    what: "sends rows twice",
    rows: [
      { rowStart: 0, rowCount: 5 },
      { rowStart: 0, rowCount: 5 },
    ],
    reached: 5,
    came: [5],
  },
  { what: "sends rows of the unit after it", rows: [{ rowStart: 0, rowCount: 11 }], reached: 0, came: [] },
  { what: "ends before its end", rows: [{ rowStart: 0, rowCount: 9 }], reached: 9, came: [9] },
])("a thread that does not keep to its unit is not believed: it $what", async ({ rows, reached, came }) => {
  const { port } = scripted((answer) => {
    for (const { rowStart, rowCount } of rows) {
      answer.rows({ rowStart, batch: batchOf(rowCount), buffers: [], bytes: 0 });
    }
    answer.end();
  });
  const found: number[] = [];

  const { reached: due } = await read(openUnitPool([port]), [unit(0, 10), unit(10, 20)], request, (batch) => {
    found.push(batch.rowCount);
  });

  expect({ due, found }).toEqual({ due: reached, found: came });
});

const manyOutputs: RunModel = async ({ inputs }) => {
  const rows = inputs[0]?.dims[0] ?? 0;
  const outputs = [{ dtype: "float32", dims: [rows, 100], data: new Float32Array(rows * 100) }] as const;
  return await Promise.resolve({ outputs, ms: 1 });
};

test("a reader that stops early stops the thread, and returns the received memory", async () => {
  const buffer = new ArrayBuffer(8);
  const { port, heard } = scripted((answer) => {
    for (const rowStart of [0, 5]) {
      answer.rows({ rowStart, batch: batchOf(5), buffers: [buffer], bytes: 8 });
    }
  });
  const batches = openUnitPool([port]).read([unit(0, 10), unit(10, 20), unit(20, 30)], request);
  await batches.next();
  await batches.return(0);

  await vi.waitFor(() => {
    expect(heard.filter(({ rpc }) => rpc === "notice")).toHaveLength(4); // two of each unit that was begun
  });
  expect(heard.flatMap((message) => (message.rpc === "cancel" ? [message.id] : []))).toEqual([0, 1]);
  expect(heard.flatMap((message) => (message.rpc === "call" ? [message.id] : []))).toEqual([0, 1]);
});

test.each([
  { sent: "rows", asked: request, run: undefined, rows: 4_000_000, bytesPerRow: 16 },
  { sent: "predictions", asked: { ...request, scoring }, run: manyOutputs, rows: 600_000, bytesPerRow: 8 + 400 },
])(
  "a reader that stops early does not have a thread fill the memory with $sent meanwhile",
  async ({ asked, run, rows, bytesPerRow }) => {
    const { path } = await writeShard(scratch.path, 20);
    await writeRows(path, `SELECT range AS id, CAST(1 AS FLOAT) AS x, CAST(1 AS FLOAT) AS y FROM range(${rows})`);
    const units = await unitsOf(path, rows);
    const one = thread(run);
    let sentRows = 0;
    one.port.on("message", (message) => {
      const sent = message as ToClient;
      sentRows += sent.rpc === "item" ? (sent.body as SentRows).batch.rowCount : 0;
    });
    const batches = openUnitPool([one.port]).read(units, asked);
    await batches.next();

    for (let before = -1; before !== sentRows; ) {
      before = sentRows;
      await new Promise((resolve) => setTimeout(resolve, 500));
    }
    expect(sentRows * bytesPerRow).toBeGreaterThan(24 * 1024 * 1024);
    expect(sentRows * bytesPerRow).toBeLessThan(32 * 1024 * 1024);
    await batches.return(0);
    one.close();
  },
);

describe("a thread that has the model", () => {
  test("scores good rows, in batches of the size that is wanted", async () => {
    const { units } = await writeShard(scratch.path, 5000);
    const sizes = new Set<number>();
    const one = thread((asked) => {
      sizes.add(asked.inputs[0]?.dims[0] ?? 0);
      return addUp(asked);
    });

    const found = await read(openUnitPool([one.port]), units, { ...request, scoring });

    expect(found).toEqual({ ids: upTo(5000), scores: upTo(5000).map((id) => id + 2), reached: 5000 });
    expect([...sizes].toSorted((a, b) => a - b)).toEqual([48, 904, 1000]); // rows that are left of 2,048 and of 904
    one.close();
  });

  test.each([
    { bad: "a NULL", x: "CASE WHEN id = 1500 THEN NULL ELSE id END" },
    { bad: "a value that is not finite", x: "CASE WHEN id = 1500 THEN 'NaN'::FLOAT ELSE id END" },
  ])("a thread that has the model leaves rows to others where one of them has $bad", async ({ x }) => {
    const { units } = await writeShard(scratch.path, 5000, x);
    const one = thread(addUp);
    const unscored: { rows: number; inputs: number }[] = [];

    const found = await read(openUnitPool([one.port]), units, { ...request, scoring }, (batch) => {
      if (batch.predictions === undefined) {
        unscored.push({ rows: batch.rowCount, inputs: batch.inputs.length });
      }
    });

    expect(found.ids).toEqual(upTo(5000));
    expect(unscored).toEqual([{ rows: expect.any(Number) as number, inputs: 1 }]);
    expect(found.scores).toHaveLength(5000 - (unscored[0]?.rows ?? 0));
    one.close();
  });

  test("a thread that has the model leaves rows that the model fails on to the main thread", async () => {
    const { units } = await writeShard(scratch.path, 3000);
    const one = thread(() => Promise.reject(new Error("the model fails")));

    const found = await read(openUnitPool([one.port]), units, { ...request, scoring });

    expect(found).toEqual({ ids: upTo(3000), scores: [], reached: 3000 });
    one.close();
  });
});
