import { copyFile, mkdir, readdir, readFile, rm, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { differences, goldenRows } from "../support/golden.js";
import { scratch } from "../support/job.js";
import { lastJson, nightlyJob } from "../support/nights.js";
import { listing, outputRows, partNames } from "../support/output.js";
import { query, writeRows } from "../support/parquet.js";
import { leaveUnfinished, runSpec, scoreHere } from "../support/score.js";
import { fixtureNamed, type OwnJob, ownJob } from "../support/world.js";
import { expectEnd } from "../support/cli.js";

const commitRows = 100;

async function partOf(job: OwnJob, span: number): Promise<string> {
  const name = (await partNames(job.out)).find((candidate) => candidate.startsWith(`part-0000${span}.`));
  if (name === undefined) {
    throw new Error(`span ${span} has no part`);
  }
  return join(job.out, name);
}

/** The part's own rows and label, with other columns: `select` reads from {part}. */
async function rewritePart(part: string, select: string, label?: string): Promise<void> {
  const [kept] = await query(
    `SELECT decode(value) AS text FROM parquet_kv_metadata('${part}') WHERE decode(key) = 'infer-batch'`,
  );
  const text = label ?? String(kept?.["text"]);
  const copy = `${part}.copy`;
  await copyFile(part, copy);
  await writeRows(part, select.replace("{part}", `read_parquet('${copy}')`), `KV_METADATA {'infer-batch': '${text}'}`);
  await rm(copy);
}

interface Damage {
  readonly what: string;
  readonly damage: (part: string, job: OwnJob) => Promise<void>;
  readonly says: RegExp;
}

const damages: readonly Damage[] = [
  { what: "is cut short", damage: (part) => truncate(part, 400), says: /./ },
  { what: "is empty", damage: (part) => truncate(part, 0), says: /./ },
  { what: "is a text", damage: (part) => writeFile(part, "id,label\n1,1\n"), says: /./ },
  {
    what: "is another span's part",
    damage: async (part, job) => copyFile(await partOf(job, 0), part),
    says: /labelled as span 0 of run cancer-logistic-/,
  },
  {
    what: "is another run's part",
    damage: async (part, job) => {
      const name = { name: "another", commit_rows: commitRows };
      await job.rewrite({ ...name, output: { parquet: { path: join(scratch.path, "elsewhere") } } });
      await scoreHere(job.spec);
      await job.rewrite({ commit_rows: commitRows });
      const [, , other = ""] = await partNames(join(scratch.path, "elsewhere"));
      await copyFile(join(scratch.path, "elsewhere", other), part);
    },
    says: /labelled as span 2 of run another-/,
  },
  {
    what: "was made by another plan of the same run",
    damage: async (part, job) => {
      await job.rewrite({ commit_rows: commitRows, output: { parquet: { path: join(scratch.path, "elsewhere") } } });
      await scoreHere(job.spec);
      await job.rewrite({ commit_rows: commitRows });
      const [, , other = ""] = await partNames(join(scratch.path, "elsewhere"));
      await copyFile(join(scratch.path, "elsewhere", other), part);
    },
    says: /labelled as span 2 of run cancer-logistic-\w+, plan /,
  },
  {
    what: "has a column less",
    damage: (part) => rewritePart(part, "SELECT * EXCLUDE (label) FROM {part}"),
    says: /its columns are \(id BIGINT, probabilities_0 FLOAT/,
  },
  {
    what: "has a column of another type",
    damage: (part) => rewritePart(part, "SELECT * REPLACE (label::INTEGER AS label) FROM {part}"),
    says: /its columns are \(id BIGINT, label INTEGER/,
  },
  {
    what: "has a row less",
    damage: (part) => rewritePart(part, "SELECT * FROM {part} LIMIT 99"),
    says: /it holds 99 rows, rejected 0 and filtered out 0 where the plan has rows 200 to 300/,
  },
  {
    what: "bears no label",
    damage: (part) => rewritePart(part, "SELECT * FROM {part}", "something else"),
    says: /not labelled as a part/,
  },
];

test.each(damages)("an unfinished run is refused, naming the file, when a part $what", async ({ damage, says }) => {
  const job = await ownJob(scratch.path, "cancer-logistic", { commit_rows: commitRows });
  await leaveUnfinished(job.spec, job.out, (span) => span < 4);
  const part = await partOf(job, 2);
  await damage(part, job);
  const before = await listing(job.out);

  await expectEnd(runSpec(job.spec), 66, part, says);
  expect(await listing(job.out)).toEqual(before);

  // As the hint says: without the part, its span is scored anew.
  await rm(part);
  const { summary } = await runSpec(job.spec);
  expect(summary).toMatchObject({ status: "complete", spans_resumed: 3 });
  expect(differences(await outputRows(job.out), await goldenRows(job.fixture))).toEqual([]);
});

test("an unfinished run is refused when its plan is damaged", async () => {
  const job = await ownJob(scratch.path, "cancer-logistic", { commit_rows: commitRows });
  await leaveUnfinished(job.spec, job.out, (span) => span < 4);
  const plan = (await listing(job.out))
    .map((line) => line.split(" ", 1)[0] ?? "")
    .find((name) => name.endsWith("plan.json"));
  await truncate(join(job.out, plan ?? ""), 100);

  await expectEnd(runSpec(job.spec), 66, "plan.json: it is damaged, or of another version");
});

describe("a finished run with checks", () => {
  const date = "2026-11-21";

  test.each([
    { what: "manifest", checks: {}, gone: /^_manifest\.json$/ },
    { what: "part", checks: { on_fail: "warn" }, gone: /^part-00003\./ },
  ])(
    "a run that lost a $what is finished anew as the hint says, with the profile that it had",
    async ({ checks, gone }) => {
      const nights = await nightlyJob(scratch.path, { checks });
      const first = await expectEnd(nights.night("run", date, "--json"), 0);
      const out = nights.folder(date);
      const control = join(out, "_infer-batch", String(lastJson(first)["run_id"]));
      const profile = await readFile(join(control, "profile.json"), "utf8");
      expect(profile).toContain('"features"');
      const lost = (await readdir(out)).find((name) => gone.test(name)) ?? expect.fail("no such file");
      await rm(join(out, lost));
      await expectEnd(nights.night("run", date), 66, "delete _SUCCESS");

      await rm(join(out, "_SUCCESS"));
      const again = await expectEnd(nights.night("run", date, "--json"), 0);
      expect(lastJson(again)).toMatchObject({ status: "complete", rows_scored: gone.test("part-00003.") ? 100 : 0 });
      expect(await readFile(join(control, "profile.json"), "utf8")).toBe(profile);
      expect(differences(await outputRows(out), await goldenRows(fixtureNamed("diabetes-mlp")))).toEqual([]);
    },
  );

  test("a staged run that lost a part must be restored or replaced, because running it again scores nothing", async () => {
    const nights = await nightlyJob(scratch.path);
    await expectEnd(nights.night("run", date), 0);
    const out = nights.folder(date);
    const [, lost = expect.fail("no part")] = await partNames(out);
    await rm(join(out, lost));

    await expectEnd(
      nights.night("run", date),
      66,
      /it is gone, .*\n {2}hint: restore it; or start over with infer-batch run \S+ --param ds=\S+ --new-run/,
    );
    await expectEnd(nights.night("run", date, "--new-run"), 0);
    expect(differences(await outputRows(out), await goldenRows(fixtureNamed("diabetes-mlp")))).toEqual([]);
  });
});

test.each(["notes.txt", "part-0.parquet", "part-00000.parquet", "data.parquet"])(
  "an output folder with a file that no run wrote (%s) is refused and nothing is written to it",
  async (name) => {
    const job = await ownJob(scratch.path, "cancer-logistic");
    await mkdir(job.out);
    await copyFile(job.shard(0), join(job.out, name));
    const before = await listing(scratch.path);

    await expectEnd(runSpec(job.spec), 64, /is there, which no run wrote/);
    expect(await listing(scratch.path)).toEqual(before);
  },
);

test.each(["finished", "unfinished"])(
  "an output folder with a %s run of another job is refused and left as it is",
  async (state) => {
    const job = await ownJob(scratch.path, "cancer-logistic", { commit_rows: commitRows });
    await (state === "finished" ? scoreHere(job.spec) : leaveUnfinished(job.spec, job.out, (span) => span === 1));
    await job.rewrite({ name: "another", commit_rows: commitRows });
    const before = await listing(scratch.path);

    await expectEnd(
      runSpec(job.spec),
      64,
      /it belongs to run cancer-logistic-[0-9a-f]{12}, not to another-[0-9a-f]{12}/,
    );
    expect(await listing(scratch.path)).toEqual(before);
  },
);
