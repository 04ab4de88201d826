import { readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import type { Plan } from "#src/run/plan/plan.js";
import { runHere } from "../support/cli.js";
import { scratch } from "../support/job.js";
import { listing, partNames } from "../support/output.js";
import { patch, type ShardJob, shardJob } from "../support/shards.js";

const full = { commit_rows: 400, input: { verify: "full" } };
const pinned = { commit_rows: 400 };

/** Exit code and what the log says, without times. */
async function run(job: ShardJob): Promise<{ code: number | null; said: string[] }> {
  const { code, stderr } = await runHere(["run", job.spec, "--no-progress"]);
  return { code, said: stderr.split("\n").map((line) => line.replace(/^\[.*?\] /, "")) };
}

/** Takes the last parts of a finished run away: it is unfinished again. */
async function undo({ out }: ShardJob, keep: number): Promise<void> {
  for (const name of ["_SUCCESS", "_manifest.json", ...(await partNames(out)).slice(keep)]) {
    await rm(join(out, name));
  }
}

/** Changes a bit; size and time stay. */
async function flip(path: string, at: number): Promise<void> {
  await patch(path, (bytes) => bytes.writeUInt8((bytes[at] ?? 0) ^ 1, at));
}

/** Of each planned shard; undefined where the plan has none. */
async function digests({ out }: ShardJob): Promise<(string | undefined)[]> {
  const file = (await listing(out))
    .map((line) => line.split(" inode ")[0] ?? "")
    .find((name) => name.endsWith("plan.json"));
  const plan = JSON.parse(await readFile(join(out, file ?? ""), "utf8")) as Plan;
  return plan.input.shards.map(({ sha256 }) => sha256);
}

test("input.verify: full says how many pages have a checksum, and pins digests", async () => {
  const job = await shardJob(scratch.path, { a: "checked", b: "plain" }, full);

  const { code, said } = await run(job);

  expect(code).toBe(0);
  expect(said).toContainEqual(
    "INFO: verified 2 shards: 66 pages match their checksum; 66 pages without one: only the digest tells of later damage",
  );
  expect(await digests(job)).toEqual([
    expect.stringMatching(/^[0-9a-f]{64}$/),
    expect.stringMatching(/^[0-9a-f]{64}$/),
  ]);
});

test("input.verify: full in a later attempt reads only the shards that are still needed", async () => {
  const job = await shardJob(scratch.path, { a: "plain", b: "plain" }, full);
  await run(job);
  await undo(job, 3);
  await flip(job.shard("a"), 17_000);

  expect(await run(job)).toMatchObject({ code: 0 });

  await undo(job, 3);
  await flip(job.shard("b"), 17_000);
  const { code, said } = await run(job);
  expect(code).toBe(66);
  expect(said.join("\n")).toMatch(
    /error: reading .*\/in\/b\.parquet: its sha256 is [0-9a-f]{64}, planned [0-9a-f]{64}/,
  );
  expect((await partNames(job.out)).length).toBe(3);
});

test("input.verify: full that is set after the run was planned checks page checksums, and says that the plan has no digests", async () => {
  const job = await shardJob(scratch.path, { a: "checked", b: "checked" }, pinned);
  await run(job);
  expect(await digests(job)).toEqual([undefined, undefined]);
  await undo(job, 3);
  await job.rewrite(full);

  const good = await run(job);
  expect(good.code).toBe(0);
  expect(good.said).toContainEqual(
    "WARN: input.verify: full: this run was planned with `pinned`, so its plan holds no digests; page checksums are checked, where the files have them",
  );

  await undo(job, 3);
  await flip(job.shard("b"), 9000);
  const damaged = await run(job);
  expect(damaged.code).toBe(65);
  expect(damaged.said.join("\n")).toMatch(
    /checking .*\/in\/b\.parquet: row group 1, column `x`: the page at byte \d+ does not/,
  );
});

test("a run that was planned with input.verify: full checks only size and time once the key is removed", async () => {
  const job = await shardJob(scratch.path, { a: "plain" }, full);
  await run(job);
  await undo(job, 1);
  await flip(job.shard("a"), 17_000);
  await job.rewrite(pinned);

  expect(await run(job)).toMatchObject({ code: 0 });
});

test("input.verify: full does not read the shards of a finished run again", async () => {
  const job = await shardJob(scratch.path, { a: "plain" }, full);
  await run(job);
  await flip(job.shard("a"), 17_000);

  expect(await run(job)).toMatchObject({ code: 0 });
});
