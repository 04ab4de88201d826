import { join } from "node:path";
import type { DuckDBListValue } from "@duckdb/node-api";
import { expect, test } from "vitest";
import { expectEnd, projectFolder, runHere } from "../support/cli.js";
import { type Fixture, fixtures, scratch, writeSpec } from "../support/job.js";
import { outputRows } from "../support/output.js";
import { readRows } from "../support/parquet.js";
import { jsonRows, startServing } from "../support/serve.js";
import { textJob, textsFile } from "../support/text-job.js";
import { fixtureNamed } from "../support/world.js";

/** Models whose predictions are the same in a batch of any size. */
const exact = new Set(["digits-lightgbm", "wine-forest", "penguins-lightgbm"]);

const dataOf = ({ table }: Fixture): string => join(projectFolder, "fixtures/data", table, "*.parquet");

/** Where numbers differ by more than they may; texts and lists are compared as they are. */
function differences(
  served: Readonly<Record<string, unknown>>,
  batch: Readonly<Record<string, unknown>>,
  tolerance: number,
): string[] {
  return Object.entries(batch).flatMap(([name, value]) => {
    const found = served[name];
    const isNear =
      typeof value === "number" && typeof found === "number" && !Number.isInteger(value)
        ? Math.abs(Math.fround(found) - value) <= tolerance * Math.max(1, Math.abs(value))
        : String(found) === String(value);
    return isNear ? [] : [`${name}: ${String(found)}, in the batch ${String(value)}`];
  });
}

test.each(fixtures.map((fixture) => [fixture.name, fixture] as const))(
  "a server predicts for the rows of %s what the batch did",
  async (_name, fixture) => {
    const key = fixture.key ?? "id";
    const spec = await writeSpec(scratch.path, fixture, { serve: { port: 0 } });
    await expectEnd(runHere(["run", spec]), 0);
    const batch = await outputRows(join(scratch.path, "out"));
    const rows = await jsonRows(`SELECT * FROM '${dataOf(fixture)}' ORDER BY ${key}`);
    const server = await startServing(spec);

    // Alone, a few, and more than a batch of the server has.
    const served: Readonly<Record<string, unknown>>[] = [];
    for (let from = 0, size = 1; from < rows.length; from += size, size = Math.min(size * 3, 200)) {
      served.push(...(await server.predict(rows.slice(from, from + size))));
    }
    const tolerance = exact.has(fixture.name) ? 0 : 1e-5;
    const sorted = batch.toSorted((one, other) => ((one[key] ?? "") < (other[key] ?? "") ? -1 : 1));
    expect(served).toHaveLength(sorted.length);
    const different = sorted.flatMap((row, index) => differences(served[index] ?? {}, row, tolerance));
    expect(different).toEqual([]);
    expect(served[0]).toMatchObject({
      source: "online",
      run_id: expect.stringMatching(`^${fixture.name}-[0-9a-f]{12}$`),
    });
  },
  60_000,
);

test("a server computes input.columns, and says of a row that input.where leaves out that it has no prediction", async () => {
  const fixture = fixtureNamed("diabetes-mlp");
  const input = {
    columns: { bmi: "bmi * 2 - bmi", s6: "case when age > 0 then ln(exp(s6)) else s6 end" },
    where: "id % 3 <> 0",
  };
  const spec = await writeSpec(scratch.path, fixture, { input, serve: { port: 0 } });
  await expectEnd(runHere(["run", spec]), 0);
  const batch = await outputRows(join(scratch.path, "out"));
  const rows = await jsonRows(`SELECT * FROM '${dataOf(fixture)}' WHERE id % 3 <> 0 ORDER BY id`);
  const server = await startServing(spec);
  const served = await server.predict(rows);
  const sorted = batch.toSorted((one, other) => Number(one["id"]) - Number(other["id"]));
  expect(sorted.flatMap((row, index) => differences(served[index] ?? {}, row, 1e-5))).toEqual([]);

  const [left] = await jsonRows(`SELECT * FROM '${dataOf(fixture)}' WHERE id = 3`);
  const response = await server.post("/predict", `{"rows":[${rows[0]},${left}]}`);
  expect(response.status).toBe(422);
  expect(await response.json()).toMatchObject({ rows: [{ row: 1, reason: "filtered" }] });
});

test("a server makes tokens of texts as the batch does, of whatever length the others are", async () => {
  const { spec, out } = await textJob(scratch.path, { serve: { port: 0 } });
  await expectEnd(runHere(["run", spec]), 0);
  const batch = new Map((await outputRows(out)).map(({ id, embedding }) => [Number(id), embedding as DuckDBListValue]));
  const texts = await readRows(textsFile);
  const server = await startServing(spec);
  const rows = texts.map(({ id, body }) => ({ id: Number(id), body }));
  const served = [...(await server.predict(rows.slice(0, 1))), ...(await server.predict(rows.slice(1)))];
  expect(served).toHaveLength(batch.size);
  for (const { id, embedding } of served) {
    const due = batch.get(Number(id))?.items ?? [];
    const farthest = Math.max(...(embedding as number[]).map((value, index) => Math.abs(value - Number(due[index]))));
    expect(farthest, String(id)).toBeLessThanOrEqual(1e-5);
  }
});
