import { appendFile, copyFile, readFile, rm, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { differences, goldenRows } from "../support/golden.js";
import { scratch } from "../support/job.js";
import { listing, listingWithoutErrors, outputRows } from "../support/output.js";
import { leaveUnfinished, runSpec, scoreHere } from "../support/score.js";
import { type OwnJob, ownJob, plannedTime } from "../support/world.js";
import { expectEnd } from "../support/cli.js";

/** Spans of 100 rows; shards end at rows 200, 400 and 569. Spans 0 and 1 are committed: shard 0 is done with. */
const commitRows = 100;
const done = (span: number): boolean => span < 2;

interface Change {
  readonly what: string;
  readonly change: (job: OwnJob) => Promise<void>;
  readonly says: RegExp;
}

const later = new Date("2026-01-02T00:00:00Z");

const shardChanges: readonly Change[] = [
  {
    what: "a pending shard has other content",
    change: async (job) => {
      await copyFile(job.shard(0), job.shard(1));
    },
    says: /changed since it was planned: in\/part-00001\.parquet/,
  },
  {
    what: "a pending shard was written again, the same bytes at another time",
    change: (job) => utimes(job.shard(2), later, later),
    says: /changed since it was planned: in\/part-00002\.parquet/,
  },
  {
    what: "a pending shard has another size at the same time",
    change: async (job) => {
      await appendFile(job.shard(1), "more");
      await utimes(job.shard(1), plannedTime, plannedTime);
    },
    says: /changed since it was planned: in\/part-00001\.parquet/,
  },
];

const missing: Change = {
  what: "a pending shard is gone",
  change: (job) => rm(job.shard(2)),
  says: /missing in\/part-00002\.parquet/,
};

const specChanges: readonly Change[] = [
  {
    what: "model.outputs changed",
    change: (job) => job.rewrite({ commit_rows: commitRows, model: { outputs: { other: "probabilities[1]" } } }),
    says: /model\.outputs is \{"other":"probabilities\[1\]"\}, planned \{"label":"label"/,
  },
  {
    what: "output.columns changed",
    change: (job) => job.rewrite({ commit_rows: commitRows, output: { columns: [], parquet: { path: "out" } } }),
    says: /output\.columns is \[\], planned \["id"\]/,
  },
  {
    what: "timezone changed",
    change: (job) => job.rewrite({ commit_rows: commitRows, timezone: "Asia/Tokyo" }),
    says: /timezone is "Asia\/Tokyo", planned "UTC"/,
  },
];

const modelChange: Change = {
  what: "the model is another one",
  change: async (job) => {
    // One bit: the same size, the same shapes.
    const bytes = await readFile(job.model);
    const at = bytes.length - 200;
    bytes[at] = (bytes[at] ?? 0) ^ 1;
    await writeFile(job.model, bytes);
  },
  says: /model\.onnx .*: its sha256 is [0-9a-f]{64}, planned [0-9a-f]{64}/,
};

async function expectRefused(job: OwnJob, { change, says }: Change): Promise<void> {
  await change(job);
  const before = await listingWithoutErrors(job.out);

  const { summary } = await expectEnd(runSpec(job.spec), 66, says, /hint: /);
  expect(summary).toBeUndefined();
  expect(await listingWithoutErrors(job.out)).toEqual(before);
}

test.each([...shardChanges, missing, ...specChanges, modelChange])(
  "an unfinished run is refused when $what",
  async (change) => {
    const job = await ownJob(scratch.path, "cancer-logistic", { commit_rows: commitRows });
    await leaveUnfinished(job.spec, job.out, done);

    await expectRefused(job, change);
  },
);

test("an unfinished run continues after the change is undone", async () => {
  const job = await ownJob(scratch.path, "cancer-logistic", { commit_rows: commitRows });
  await leaveUnfinished(job.spec, job.out, done);
  const bytes = await readFile(job.shard(1));
  await rm(job.shard(1));
  await expectEnd(runSpec(job.spec), 66);
  await writeFile(job.shard(1), bytes);
  await utimes(job.shard(1), plannedTime, plannedTime);

  const { summary } = await expectEnd(runSpec(job.spec), 0);
  expect(summary).toMatchObject({ rows_scored: 369, spans_resumed: 2 });
  expect(differences(await outputRows(job.out), await goldenRows(job.fixture))).toEqual([]);
});

test("an unfinished run warns of an added shard, leaves it out and counts it", async () => {
  const job = await ownJob(scratch.path, "cancer-logistic", { commit_rows: commitRows });
  await leaveUnfinished(job.spec, job.out, done);
  // Sorts before all others: were it taken in, every row would move.
  await copyFile(job.shard(2), join(scratch.path, "in/extra.parquet"));

  const { summary } = await expectEnd(runSpec(job.spec), 0, /WARN.*added in\/extra\.parquet/);
  expect(summary).toMatchObject({ status: "complete", rows_planned: 569, shards_unplanned: 1 });
  expect(differences(await outputRows(job.out), await goldenRows(job.fixture))).toEqual([]);
});

test.each([...shardChanges, ...specChanges, modelChange])(
  "a finished run is refused, and left as it is, when $what",
  async (change) => {
    const job = await ownJob(scratch.path, "cancer-logistic", { commit_rows: commitRows });
    await scoreHere(job.spec);

    await expectRefused(job, change);
  },
);

test("a finished run is refused when a shard was added", async () => {
  const job = await ownJob(scratch.path, "cancer-logistic", { commit_rows: commitRows });
  await scoreHere(job.spec);

  await expectRefused(job, {
    what: "a shard was added",
    change: () => copyFile(job.shard(0), join(scratch.path, "in/part-00003.parquet")),
    says: /added in\/part-00003\.parquet/,
  });
});

test.each([
  { what: "a shard", remove: (job: OwnJob) => rm(job.shard(1)) },
  { what: "every shard", remove: (job: OwnJob) => rm(join(job.shard(0), ".."), { recursive: true }) },
  { what: "the model", remove: (job: OwnJob) => rm(job.model) },
])("a finished run stays already_complete when $what is deleted", async ({ remove }) => {
  const job = await ownJob(scratch.path, "cancer-logistic", { commit_rows: commitRows });
  await scoreHere(job.spec);
  const before = await listing(job.out);
  await remove(job);

  const { summary } = await expectEnd(runSpec(job.spec), 0);
  expect(summary).toMatchObject({ status: "already_complete", rows_scored: 0 });
  expect(await listing(job.out)).toEqual(before);
});

test("a finished run stays already_complete when a shard that the spec names without wildcards is deleted", async () => {
  const job = await ownJob(scratch.path, "cancer-logistic");
  await job.rewrite({ input: { path: ["in/part-00000.parquet"] } });
  await scoreHere(job.spec);
  await rm(job.shard(0));

  expect((await runSpec(job.spec)).summary).toMatchObject({ status: "already_complete", rows_planned: 200 });
});

test("a finished run stays already_complete with other engine settings", async () => {
  const job = await ownJob(scratch.path, "cancer-logistic", { commit_rows: commitRows });
  await scoreHere(job.spec);
  await job.rewrite({ engine: { threads: 2, batch_size: 5 }, commit_rows: 7 });

  expect((await runSpec(job.spec)).summary).toMatchObject({ status: "already_complete" });
});
