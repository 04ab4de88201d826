import { createHash } from "node:crypto";
import { readFile, rm, truncate, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { describe, expect, test } from "vitest";
import { expectEnd, runHere } from "../support/cli.js";
import { holdRun } from "../support/faulty.js";
import { differences, goldenRows } from "../support/golden.js";
import { scratch } from "../support/job.js";
import { faultsOfFinished, listing, outputRows, partNames, spanOfName } from "../support/output.js";
import { leaveUnfinished, runSpec, scoreHere } from "../support/score.js";
import { torture } from "../support/torture.js";
import { until } from "../support/waiting.js";
import { type OwnJob, ownJob } from "../support/world.js";

const commitRows = 100;

const id = "cancer-logistic-4f53cda18c2b";

const plan = (number = 1): string => `_infer-batch/${id}${number === 1 ? "" : `-r${number}`}/plan.json`;

const otherPlan = { commit_rows: commitRows, model: { cast: "lossy" } };

async function partOf({ out }: OwnJob, span: number): Promise<string> {
  const name = (await partNames(out)).find((candidate) => spanOfName(candidate) === span);
  return join(out, name ?? "");
}

async function finished(job: OwnJob): Promise<void> {
  await scoreHere(job.spec);
}

async function unfinished(job: OwnJob): Promise<void> {
  await leaveUnfinished(job.spec, job.out, (span) => span < 4);
}

async function twice(job: OwnJob): Promise<void> {
  await scoreHere(job.spec);
  await scoreHere(job.spec, { newRun: true });
}

interface Case {
  readonly what: string;
  readonly before: (job: OwnJob) => Promise<void>;
  readonly damage: (job: OwnJob) => Promise<void>;
  readonly says: RegExp;
  /** Of the run that `--new-run` then opens. */
  readonly number?: number;
}

const cases: readonly Case[] = [
  {
    what: "a finished run without one of its parts",
    before: finished,
    damage: async (job) => rm(await partOf(job, 1)),
    says: /part-00001.*: it is gone, the manifest says/,
  },
  {
    what: "a finished run with a part that was cut short",
    before: finished,
    damage: async (job) => truncate(await partOf(job, 2), 400),
    says: /part-00002.*: it has 400 bytes, the manifest says/,
  },
  {
    what: "a finished run without its manifest",
    before: finished,
    damage: ({ out }) => rm(join(out, "_manifest.json")),
    says: /_manifest.json: it is gone or damaged/,
  },
  {
    what: "a finished run with a damaged manifest",
    before: finished,
    damage: ({ out }) => truncate(join(out, "_manifest.json"), 100),
    says: /_manifest.json: it is gone or damaged/,
  },
  {
    what: "an unfinished run with a part that was cut short",
    before: unfinished,
    damage: async (job) => truncate(await partOf(job, 2), 400),
    says: /part-00002/,
  },
  {
    what: "an unfinished run with an empty part",
    before: unfinished,
    damage: async (job) => truncate(await partOf(job, 0), 0),
    says: /part-00000/,
  },
  {
    what: "a finished run with a damaged plan",
    before: finished,
    damage: ({ out }) => truncate(join(out, plan()), 100),
    says: /plan.json: it is damaged, or of another version/,
  },
  {
    what: "an unfinished run with a damaged plan",
    before: unfinished,
    damage: ({ out }) => truncate(join(out, plan()), 100),
    says: /plan.json: it is damaged, or of another version/,
  },
  {
    what: "a finished run that lost its plan, and is planned otherwise by now",
    before: finished,
    damage: async (job) => {
      await rm(join(job.out, plan()));
      await job.rewrite(otherPlan);
    },
    says: /_manifest.json: it belongs to plan [0-9a-f]{64}, and the folder's plan is/,
  },
  {
    what: "an unfinished run that lost its plan, and is planned otherwise by now",
    before: unfinished,
    damage: async (job) => {
      await rm(join(job.out, plan()));
      await job.rewrite(otherPlan);
    },
    says: /part-00000.*labelled as span 0 of run cancer-logistic-\w+, plan \w+; 3 more parts are damaged/,
  },
  {
    what: "a second run that lost its plan",
    before: twice,
    damage: ({ out }) => rm(join(out, plan(2))),
    says: /it has parts of run cancer-logistic-\w+-r2, and no .*plan.json/,
    number: 3,
  },
  {
    what: "a second run with a damaged plan",
    before: twice,
    damage: ({ out }) => truncate(join(out, plan(2)), 100),
    says: /plan.json: it is damaged, or of another version/,
    number: 3,
  },
  {
    what: "a second run whose plans are all gone",
    before: twice,
    damage: ({ out }) => rm(join(out, "_infer-batch"), { recursive: true }),
    says: /it has parts of run cancer-logistic-\w+-r2, and no .*plan.json/,
    number: 3,
  },
];

async function jobIn(folder: string): Promise<OwnJob> {
  return await ownJob(folder, "cancer-logistic", { commit_rows: commitRows });
}

/** A plan's text with the digest that it has by now. */
function resealed(sealed: string): string {
  const text = sealed.replace(/,\n "sha256": "[0-9a-f]{64}"\n\}\n$/, "\n}\n");
  const digest = createHash("sha256").update(text).digest("hex");
  return text.replace(/\n\}\n$/, `,\n "sha256": "${digest}"\n}\n`);
}

/** The new run's rows, and nothing of another one. */
async function expectWhole(job: OwnJob, number: number): Promise<void> {
  expect(differences(await outputRows(job.out), await goldenRows(job.fixture))).toEqual([]);
  expect(await faultsOfFinished(job.out, job.fixture.rows)).toEqual([]);
  expect(await readFile(join(job.out, "_SUCCESS"), "utf8")).toContain(`"${id}-r${number}"`);
  expect((await scoreHere(job.spec)).status).toBe("already_complete");
  expect((await listing(job.out)).filter((line) => /\/(tmp|parts|withdrawn)\//.test(line))).toEqual([]);
}

describe("a damaged output", () => {
  test.each(cases.filter((_, index) => torture || index % 2 === 0))(
    "a damaged output is refused by run, reported by status, and replaced by --new-run: $what",
    async (one) => {
      const job = await jobIn(scratch.path);
      await one.before(job);
      await one.damage(job);

      const status = await runHere(["status", job.spec]);
      const refused = await expectEnd(runSpec(job.spec), 66);
      expect(refused.stderr).toMatch(one.says);
      expect(refused.stderr).toMatch(/hint: .*; or start over with infer-batch run \S+ --new-run/);
      if (!one.what.includes("otherwise")) {
        expect([status.code, status.stderr], status.stdout).toEqual([66, refused.stderr]);
        expect(status.stdout).toMatch(
          one.says.source.includes("plan.json")
            ? /: damaged, its plan is gone or unreadable -> /
            : /: damaged, 6 spans planned \(569 rows\) -> /,
        );
      }

      const { code, stderr, summary } = await runSpec(job.spec, { args: ["--new-run"] });
      expect([code, summary], stderr).toMatchObject([0, { status: "complete", spans_resumed: 0 }]);
      expect(stderr).toMatch(/planning a new run in place of cancer-logistic-\w+(-r2)?: /);
      await expectWhole(job, one.number ?? 2);
    },
  );

  test("status lists every part that is missing or damaged, as text and as JSON", async () => {
    const job = await jobIn(scratch.path);
    await scoreHere(job.spec);
    await rm(await partOf(job, 1));
    await truncate(await partOf(job, 3), 7);
    await rm(await partOf(job, 5));

    const { stdout, stderr } = await expectEnd(runHere(["status", job.spec]), 66);
    expect(stdout.trimEnd().split("\n")).toEqual([
      `${id}: damaged, 6 spans planned (569 rows) -> ${job.out}`,
      expect.stringMatching(/\/part-00001.*: it is gone, the manifest says \d+ bytes$/),
      expect.stringMatching(/\/part-00003.*: it has 7 bytes, the manifest says \d+ bytes$/),
      expect.stringMatching(/\/part-00005.*: it is gone, the manifest says \d+ bytes$/),
    ]);
    expect(stderr).toMatch(/^error: checking .*part-00001.*: it is gone, .*; 2 more parts are damaged\n {2}hint: /);
    const json = await expectEnd(runHere(["status", job.spec, "--json"]), 66);
    expect(JSON.parse(json.stdout)).toMatchObject({
      run_id: id,
      status: "damaged",
      spans_planned: 6,
      spans_committed: null,
      damage: stdout.trimEnd().split("\n").slice(1),
    });
  });

  test("status --json gives null for the numbers of a plan that cannot be read, not 0", async () => {
    const job = await jobIn(scratch.path);
    await scoreHere(job.spec);
    await truncate(join(job.out, plan()), 100);
    const { stdout } = await expectEnd(runHere(["status", job.spec, "--json"]), 66);
    expect(JSON.parse(stdout)).toMatchObject({
      run_id: id,
      status: "damaged",
      rows_planned: null,
      spans_planned: null,
      spans_committed: null,
    });
  });

  test("status lists every damaged part of an unfinished run, too", async () => {
    const job = await jobIn(scratch.path);
    await unfinished(job);
    await truncate(await partOf(job, 0), 400);
    await writeFile(await partOf(job, 2), "id,label\n1,1\n");
    const { stdout } = await expectEnd(runHere(["status", job.spec]), 66);
    const lines = stdout.trimEnd().split("\n").slice(1);
    expect(lines.map((line) => basename(line.split(": ", 1)[0] ?? ""))).toEqual([
      basename(await partOf(job, 0)),
      basename(await partOf(job, 2)),
    ]);
  });

  test("a damaged output stays as it is for readers until all parts of the new run exist", async () => {
    const job = await jobIn(scratch.path);
    await scoreHere(job.spec);
    await rm(await partOf(job, 1));
    const visible = async (): Promise<string[]> =>
      (await listing(job.out)).filter((line) => !line.startsWith("_infer-batch"));
    const before = await visible();
    const held = join(scratch.path, "held");
    const call = "rename control/withdrawn/own/_SUCCESS #1";
    const slow = await holdRun(job.spec, { out: job.out, call, held, args: ["--new-run"] });
    expect(await visible()).toEqual(before);
    await expectEnd(slow.release(), 0);
    await expectWhole(job, 2);
  });

  test("a late attempt of the first run adds nothing after the second run's plan was lost and a third one was opened", async () => {
    const job = await jobIn(scratch.path);
    const { spec, out } = job;
    const late = await holdRun(spec, { out, call: "link part-00004 #1", held: join(scratch.path, "held") });
    await until(async () => (await partNames(out)).some((name) => spanOfName(name) === 0));
    await truncate(await partOf(job, 0), 400);
    expect(await scoreHere(spec, { newRun: true })).toMatchObject({ runId: `${id}-r2`, status: "complete" });
    await rm(join(out, plan(2)));
    expect(await scoreHere(spec, { newRun: true })).toMatchObject({ runId: `${id}-r3`, status: "complete" });

    await expectEnd(late.release(), 66);
    await expectWhole(job, 3);
  });

  test("a run whose plan is of another version is kept as it is without --new-run", async () => {
    const job = await jobIn(scratch.path);
    await scoreHere(job.spec);
    const path = join(job.out, plan());
    const text = await readFile(path, "utf8");
    await writeFile(path, resealed(text.replace('"version": 1', '"version": 2')));
    const before = await listing(job.out);
    await expectEnd(runSpec(job.spec), 66, /plan.json: it is damaged, or of another version of infer-batch/);
    expect(await listing(job.out)).toEqual(before);
  });

  test("two processes with --new-run at once replace a damaged output once", async () => {
    const job = await jobIn(scratch.path);
    await scoreHere(job.spec);
    await rm(await partOf(job, 1));
    const results = await Promise.all([1, 2].map(() => runSpec(job.spec, { ownProcess: true, args: ["--new-run"] })));
    for (const { code, stderr } of results) {
      // A process that comes when the other's run is complete opens the next one; a superseded one is told to run again.
      expect([0, 66], stderr).toContain(code);
    }
    expect(results.map(({ code }) => code)).toContain(0);
    expect((await scoreHere(job.spec)).status).toBe("already_complete");
    expect(differences(await outputRows(job.out), await goldenRows(job.fixture))).toEqual([]);
    expect(await faultsOfFinished(job.out, job.fixture.rows)).toEqual([]);
  });
});
