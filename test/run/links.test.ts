import { link, mkdir, readdir, rename, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import type { SmallModel } from "../support/onnx.js";
import { identity, smallJob } from "../support/faulty.js";
import { differences, goldenRows } from "../support/golden.js";
import { scratch } from "../support/job.js";
import { outputRows } from "../support/output.js";
import type { Row } from "../support/parquet.js";
import { runSpec, scoreHere } from "../support/score.js";
import { type OwnJob, ownJob } from "../support/world.js";
import { expectEnd } from "../support/cli.js";

const byId = (rows: readonly Row[]): Row[] =>
  rows.toSorted(({ id: one }, { id: other }) => ((one as bigint) < (other as bigint) ? -1 : 1));

test("a wildcard follows links, and a shard that is found more than once is scored once", async () => {
  const job = await ownJob(scratch.path, "wine-forest");
  const at = (path: string): string => join(scratch.path, path);
  for (const folder of ["store", "in/below", "elsewhere/day", "days"]) {
    await mkdir(at(folder), { recursive: true });
  }
  await symlink("part-00000.parquet", at("in/newest.parquet"));
  await link(job.shard(0), at("in/same.parquet"));
  await symlink("in", at("latest"));
  await symlink("..", at("in/below/up"));
  await rename(job.shard(3), at("store/blob"));
  await symlink("../store/blob", job.shard(3));
  await rename(job.shard(4), at("elsewhere/day/data.parquet"));
  await symlink("../elsewhere/day", at("days/day"));
  const spelt = [at("in/part-00001.parquet"), "./in/part-00000.parquet", "in/../in//part-00002.parquet"];
  const path = ["in/*.parquet", "latest/*.parquet", "days/*/*.parquet", "in/**/*.parquet", "in/**", ...spelt];
  await job.rewrite({ input: { path } });

  expect(await scoreHere(job.spec)).toMatchObject({ status: "complete", rowsPlanned: job.fixture.rows });
  expect(differences(byId(await outputRows(job.out)), byId(await goldenRows(job.fixture)))).toEqual([]);
});

/** Moves a shard into a folder of the output that its owner check passes over. */
async function hide(job: OwnJob, output: string): Promise<void> {
  await mkdir(join(output, "_old"), { recursive: true });
  await rename(job.shard(0), join(output, "_old/a.parquet"));
}

test("an output folder that the input pattern matches is refused with 64, and nothing is written", async () => {
  const job = await ownJob(scratch.path, "wine-forest", { input: { path: ["in/*.parquet", "out/_old/*.parquet"] } });
  await hide(job, job.out);

  await expectEnd(runSpec(job.spec), 64, "out/_old/a.parquet is in output.parquet.path");
  expect(await readdir(job.out)).toEqual(["_old"]);
});

test("an output folder that the input pattern matches through a link is refused with 64", async () => {
  const output = { parquet: { path: "latest" } };
  const input = { path: ["in/*.parquet", "in/scored/_*/*.parquet"] };
  const job = await ownJob(scratch.path, "wine-forest", { input, output });
  await hide(job, join(scratch.path, "in/scored"));
  await symlink("in/scored", join(scratch.path, "latest"));

  await expectEnd(runSpec(job.spec), 64, "in/scored/_old/a.parquet is in output.parquet.path");
});

test("an output folder that the input pattern matches is refused before the first part exists", async () => {
  const job = await ownJob(scratch.path, "wine-forest", { input: { path: "**/*.parquet" } });

  await expectEnd(
    runSpec(job.spec),
    64,
    /\*\*\/\*\.parquet matches what is written to output\.parquet\.path: \S+\/out\/part-00000\./,
  );
  expect(await readdir(scratch.path)).not.toContain("out");
});

/**
 * `id` BIGINT, `x` DOUBLE and `wide` DECIMAL(60,2), which DuckDB cannot write: two rows by pyarrow's write_table
 * with compression="none", use_dictionary=False, write_statistics=False, store_schema=False.
 */
const wideParquet = Buffer.from(
  "UEFSMRUAFSwVLCwVBBUAFQYVBhwAAAACAAAABAEBAAAAAAAAAAIAAAAAAAAAFQAVLBUsLBUEFQAVBhUGHAAAAAIAAAAEAQAAAAAAAOA/AAAAAAAA+D8V" +
    "ABV0FXQsFQQVABUGFQYcAAAAAgAAAAQBAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAH0An08nJheaIkUB12JCLJRlkNkP/////////xUEGUw1ABgGc2No" +
    "ZW1hFQYAFQQlAhgCaWQAFQolAhgBeAAVDhU0FQIYBHdpZGUlChUEFXgsXBUEFXgAAAAWBBkcGTwmABwVBBklBgAZGAJpZBUAFgQWUhZSJghJHBUAFQAV" +
    "AgA8KQYZJgAEAAAAJgAcFQoZJQYAGRgBeBUAFgQWUhZSJlpJHBUAFQAVAgA8KQYZJgAEAAAAJgAcFQ4ZJQYAGRgEd2lkZRUAFgQWmgEWmgEmrAFJHBUA" +
    "FQAVAgA8KQYZJgAEAAAAFr4CFgQmCBa+AgAoIHBhcnF1ZXQtY3BwLWFycm93IHZlcnNpb24gMjYuMC4xGTwcAAAcAAAcAAAAAQEAAFBBUjE=",
  "base64",
);

async function wideJob(folder: string, changes: object): Promise<Awaited<ReturnType<typeof smallJob>>> {
  const job = await smallJob(folder, { model: identity, select: "SELECT 1", ...changes });
  await writeFile(join(folder, "in/a.parquet"), wideParquet);
  return job;
}

test.each([
  { use: "a feature", changes: { modelSpec: { inputs: { x: ["wide"] } } } },
  { use: "a carried column", changes: { output: { columns: ["id", "wide"], parquet: { path: "out" } } } },
])("a decimal of more than 38 digits as $use is refused with 64 by the type that it has", async ({ changes }) => {
  const { spec } = await wideJob(scratch.path, changes);

  await expectEnd(runSpec(spec), 64, "names `wide`, whose type DECIMAL(60,2) is not supported");
  expect(await readdir(scratch.path)).not.toContain("out");
});

test("an unused decimal column of more than 38 digits does not stop a run", async () => {
  const { spec, out } = await wideJob(scratch.path, {});

  await scoreHere(spec);

  expect(await outputRows(out)).toEqual([
    { id: 1n, score: 0.5 },
    { id: 2n, score: 1.5 },
  ]);
});

const anyWidth: SmallModel = {
  inputs: [{ name: "features", dtype: "float32", shape: ["N", "F"] }],
  outputs: [{ name: "score", dtype: "float32", shape: ["N", 1] }],
  nodes: [{ op: "ReduceMax", from: ["features"], to: "score", attributes: { axes: [1], keepdims: 1 } }],
};
const select = "SELECT row AS id, row + 0.5 AS b, row - 0.5 AS a, 'x' AS t FROM range(3) AS t(row)";

test("a model that accepts any number of columns is refused with 64 and a list of columns to paste, which works", async () => {
  const { spec, out, rewrite } = await smallJob(scratch.path, { model: anyWidth, select });

  await expectEnd(
    runSpec(spec),
    64,
    "input `features` is float32 [N,?]: it does not say how many columns it takes",
    "hint: list them in the model's order: model.inputs: { features: [b, a] }",
  );
  await rewrite({ model: { inputs: { features: ["b", "a"] } } });
  await scoreHere(spec);
  expect((await outputRows(out)).map(({ score }) => score)).toEqual([0.5, 1.5, 2.5]);
});
