import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { showType } from "#src/columns/types.js";
import { scratchFolder } from "../support/job.js";
import { faultsOfFinished } from "../support/output.js";
import { hasPyarrow } from "../support/pyarrow.js";
import { rejectLines } from "../support/rejects.js";
import { torture } from "../support/torture.js";
import { carryOut, writeCase } from "./carry-out.js";
import { type Case, caseOf } from "./cases.js";
import { differencesOf } from "./compare.js";
import { expectedRows } from "./oracle.js";
import { checkByPython, writeByPyarrow } from "./pyarrow.js";
import { readParts } from "./read-output.js";

/** INFER_BATCH_SEED=17: that case only, or so many from it as INFER_BATCH_CASES says. In torture each time others. */
const firstSeed = process.env["INFER_BATCH_SEED"];
const first = Number(firstSeed ?? (torture ? Date.now() % 1_000_000_000 : 1));
const count = Number(process.env["INFER_BATCH_CASES"] ?? (firstSeed === undefined ? (torture ? 500 : 5) : 1));
const seeds = Array.from({ length: count }, (_, index) => first + index);

function about({ seed, rows, shards, model, settings, way, columns, computed, filter }: Case): string {
  const lines = [
    `INFER_BATCH_SEED=${seed} repeats it: ${rows} rows, ${way}, ${JSON.stringify(settings)}`,
    ...columns.map(({ name, type, nullable }) => `column ${name} ${showType(type)}${nullable ? "" : ", required"}`),
    ...shards.map(
      ({ path, rowStart, rowEnd, writing }) => `${path} [${rowStart}, ${rowEnd}) ${JSON.stringify(writing)}`,
    ),
    ...model.bindings.map((binding) => JSON.stringify(binding)),
    ...computed.map(({ name, sql }) => `${name}: ${sql}`),
    ...(filter === undefined ? [] : [`where: ${filter.sql}`]),
  ];
  return lines.join("\n");
}

/** Where what a job gives is not what the values and the model that it was made of say. */
async function faultsOf(one: Case, withPython: boolean): Promise<string[]> {
  await using scratch = await scratchFolder();
  const out = join(scratch.path, "out");
  const expected = expectedRows(one);
  await writeCase(scratch.path, one);
  await writeByPyarrow(scratch.path, one);
  const found = await carryOut(scratch.path, one, expected);
  if (found.length > 0) {
    return found;
  }
  const scored = expected.filter(({ outcome }) => outcome.kind === "scored").length;
  found.push(...differencesOf(one, expected, { parts: await readParts(out), rejects: await rejectLines(out) }));
  found.push(...(await faultsOfFinished(out, scored)));
  return withPython ? [...found, ...(await checkByPython(scratch.path, one, expected))] : found;
}

const limits = { timeout: 300_000 };

async function expectNoFaults(one: Case, withPython: boolean): Promise<void> {
  const found = await faultsOf(one, withPython).catch((error: unknown) => [
    error instanceof Error ? (error.stack ?? error.message) : String(error),
  ]);

  expect(found, about(one)).toEqual([]);
}

describe("a random job gives what plain JavaScript computes from the values of its table", () => {
  test.each(seeds)("case %i", limits, async (number) => {
    await expectNoFaults(caseOf(number, false), false);
  });
});

describe.skipIf(process.env["PYTHON"] === undefined || !hasPyarrow)("a random job over pyarrow's shards", () => {
  test.each(seeds)("gives what pyarrow reads and Python's onnxruntime predicts: case %i", limits, async (number) => {
    await expectNoFaults(caseOf(number, true), true);
  });
});
