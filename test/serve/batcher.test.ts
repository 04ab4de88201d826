import { expect, test } from "vitest";
import type { Column, Piece } from "#src/columns/types.js";
import { createBatcher } from "#src/serve/batcher.js";
import { deadlineIn } from "#src/serve/deadline.js";
import type { RowScorer } from "#src/serve/scorer.js";
import type { JsonRow } from "#src/serve/served-columns.js";
import { latch } from "../support/waiting.js";

test("a model is closed when it has scored the rows that nobody waits for any more", async () => {
  const happened: string[] = [];
  const [begun, answer] = [latch<void>(), latch<void>()];
  const scorer: Pick<RowScorer, "columns" | "concurrency" | "score" | typeof Symbol.asyncDispose> = {
    columns: [],
    concurrency: 1,
    async score() {
      begun.resolve();
      await answer.promise;
      happened.push("scored");
      throw new Error("nobody waits for it");
    },
    [Symbol.asyncDispose]() {
      happened.push("closed");
      return Promise.resolve();
    },
  };
  const batcher = createBatcher({
    scorer: scorer as RowScorer,
    batch: { rows: 1, wait: 0 },
    queue: 10,
    nowMs: () => performance.now(),
  });
  const rows = { values: new Map(), numbers: [0] };
  const late = batcher.score(
    rows,
    deadlineIn(50, () => performance.now()),
  );
  await begun.promise;
  await expect(late).rejects.toMatchObject({ status: 504 });
  const closing = batcher[Symbol.asyncDispose]();
  setTimeout(answer.resolve, 20);
  await closing;
  expect(happened).toEqual(["scored", "closed"]);
});

test("a request with a value of another type is refused alone, and others of its batch are scored together", async () => {
  const pieces: Piece[] = [];
  const scorer: Pick<RowScorer, "columns" | "concurrency" | "score"> = {
    columns: [{ name: "x", path: ["x"], type: "float64", isNeeded: true }],
    concurrency: 1,
    score(piece) {
      pieces.push(piece);
      return Promise.resolve({ rows: { rowCount: 3, columns: [] }, rejects: [], at: Int32Array.of(0, 1, 2) });
    },
  };
  const nowMs = (): number => performance.now();
  const batcher = createBatcher({ scorer: scorer as RowScorer, batch: { rows: 8, wait: 0 }, queue: 10, nowMs });
  const score = (values: readonly object[], numbers: readonly number[]) =>
    batcher.score({ values: values as readonly JsonRow[], numbers }, deadlineIn(undefined, nowMs));
  const tensors = new Map([["x", { kind: "fixed", elementsPerValue: 1, data: Float64Array.of(7), valid: undefined }]]);

  const [good, bad, lacking, v2] = await Promise.allSettled([
    score([{ x: 1 }, { x: 2 }], [0, 1]),
    score([{ x: 3 }, { x: "four" }], [4, 5]),
    score([{ y: 3 }], [6]),
    batcher.score({ values: tensors as Map<string, Column>, numbers: [0] }, deadlineIn(undefined, nowMs)),
  ]);
  expect(good).toMatchObject({ status: "fulfilled", value: { at: Int32Array.of(0, 1) } });
  expect(v2).toMatchObject({ status: "fulfilled", value: { at: Int32Array.of(2) } });
  expect(bad).toMatchObject({ reason: { status: 400, message: expect.stringMatching(/`x` is "four"/) as string } });
  expect(lacking).toMatchObject({ reason: { status: 400, message: expect.stringMatching(/row 6 .*`x`/) as string } });
  expect(pieces.map(({ columns }) => columns.get("x"))).toMatchObject([{ data: Float64Array.of(1, 2, 7) }]);
});
