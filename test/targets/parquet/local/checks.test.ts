import { copyFile, mkdir, readdir, readFile, rename, rm, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { spanAt } from "#src/run/plan/spans.js";
import { nodeFileSystem } from "#src/stores/disk.js";
import type { Sink } from "#src/targets/target.js";
import { sealedText } from "#src/targets/parquet/plan-file.js";
import { scratchFolder } from "../../../support/job.js";
import { query, writeRows } from "../../../support/parquet.js";
import {
  beginDrive,
  type BegunRun,
  drive,
  driveFolder,
  drivePlan,
  driveRows,
  nothingTold,
  openDriveSink,
} from "../../../support/sink-drive.js";

interface StoredRun {
  readonly out: string;
  readonly sink: Sink;
  readonly plan: string;
  readonly part: (span: number) => string;
}

async function withStoredRun(spans: number | "finished", work: (run: StoredRun) => Promise<void>): Promise<void> {
  await using scratch = await scratchFolder();
  const root = join(scratch.path, "disk");
  await mkdir(root);
  const limit = spans === "finished" ? {} : { spans };
  await drive({ root, fs: nodeFileSystem, told: nothingTold(), ...limit });
  await using sink = await openDriveSink(root, nodeFileSystem);
  const out = driveFolder(root);
  await work({
    out,
    sink,
    plan: join(out, "_infer-batch", drivePlan.runId, "plan.json"),
    part: (span) => join(out, `part-0000${span}.${drivePlan.runId}.parquet`),
  });
}

async function commit(run: BegunRun, span: number): Promise<unknown> {
  return await run.commit(spanAt(drivePlan, span), driveRows(span));
}

const foreign = (text: RegExp): object => ({ code: "OUTPUT_FOREIGN", message: expect.stringMatching(text) });
const damaged = (text: RegExp): object => ({ code: "OUTPUT_DAMAGED", message: expect.stringMatching(text) });

async function changeManifest(out: string, change: object): Promise<void> {
  const path = join(out, "_manifest.json");
  await writeFile(path, JSON.stringify({ ...JSON.parse(await readFile(path, "utf8")), ...change }));
}

describe("a folder is refused", () => {
  const strange: readonly [string, (out: string) => Promise<void>, RegExp][] = [
    ["somebody's file", (out) => writeFile(join(out, "x.csv"), ""), /x\.csv is there, which no run wrote/],
    ["another run's part", (out) => writeFile(join(out, "part-00000.b-1.parquet"), ""), /a part of run b-1/],
    ["somebody's _SUCCESS", (out) => writeFile(join(out, "_SUCCESS"), ""), /no manifest of this program/],
    [
      "another run's claim",
      (out) => writeFile(join(out, "_infer-batch/run.json"), '{"run_id":"b-1"}'),
      /it belongs to run b-1/,
    ],
  ];

  test.each(strange)("a folder is refused for %s when a run is looked for", async (_, put, says) => {
    await withStoredRun(1, async ({ out, sink }) => {
      await put(out);
      await expect(sink.find(drivePlan.runId)).rejects.toMatchObject(foreign(says));
    });
  });

  test.each(strange)(
    "a folder is refused for %s that came after the search, before there is a plan",
    async (_, put, says) => {
      await withStoredRun(0, async ({ out, sink, plan }) => {
        await rm(plan);
        expect(await sink.find(drivePlan.runId)).toBeUndefined();
        await put(out);
        await expect(sink.create(drivePlan)).rejects.toMatchObject(foreign(says));
        expect(await readdir(join(plan, ".."))).not.toContain("plan.json");
      });
    },
  );

  test.each(strange)(
    "a folder is refused for %s that came during the run, before the run is finished",
    async (_, put, says) => {
      await withStoredRun(2, async ({ out, sink }) => {
        const run = await beginDrive(sink);
        await commit(run, 2);
        await put(out);
        await expect(run.finish()).rejects.toMatchObject(foreign(says));
        expect(await readdir(out)).not.toContain("_manifest.json");
      });
    },
  );
});

describe("a finished run with a wrong manifest or part", () => {
  test.each<[string, object, object]>([
    ["of another run", { run_id: "b-1" }, foreign(/it holds run b-1/)],
    ["of another plan", { plan_id: "0".repeat(64) }, damaged(/it belongs to plan 0{64}/)],
    ["that is none", { format: "x" }, damaged(/_manifest.json: it is gone or damaged/)],
  ])("a finished run is refused with a manifest %s", async (_, change, error) => {
    await withStoredRun("finished", async ({ out, sink }) => {
      await changeManifest(out, change);
      await expect(beginDrive(sink)).rejects.toMatchObject(error);
    });
  });

  test.each([
    { what: "is gone", damage: (part: string) => rm(part), says: /it is gone, the manifest says/ },
    { what: "is shorter", damage: (part: string) => truncate(part, 400), says: /it has 400 bytes, the manifest says/ },
  ])("a finished run is refused when a part $what", async ({ damage, says }) => {
    await withStoredRun("finished", async ({ sink, part }) => {
      await damage(part(1));
      await expect(beginDrive(sink)).rejects.toMatchObject(damaged(says));
    });
  });
});

async function rewrite(part: string, select: string, label?: string): Promise<void> {
  const copy = `${part}.copy`;
  await rename(part, copy);
  const [kept] = await query(
    `SELECT decode(value) AS text FROM parquet_kv_metadata('${copy}') WHERE decode(key) = 'infer-batch'`,
  );
  const text = label ?? String(kept?.["text"]);
  await writeRows(part, `${select} FROM read_parquet('${copy}')`, `KV_METADATA {'infer-batch': '${text}'}`);
  await rm(copy);
}

const partDamages: readonly [string, (run: StoredRun) => Promise<void>, RegExp][] = [
  ["is no Parquet", ({ part }) => writeFile(part(0), "text"), /checking .*part-00000/],
  ["has no label", ({ part }) => rewrite(part(0), "SELECT *", "{}"), /it is not labelled as a part/],
  ["is another span's", ({ part }) => copyFile(part(1), part(0)), /it is labelled as span 1 of run/],
  [
    "has a column of another type",
    ({ part }) => rewrite(part(0), "SELECT id, score::DOUBLE AS score"),
    /its columns are/,
  ],
];

describe("a part that does not match the plan", () => {
  test.each(partDamages)("a part is refused when it %s", async (_, damage, says) => {
    await withStoredRun(2, async (run) => {
      await damage(run);
      await expect(beginDrive(run.sink)).rejects.toMatchObject(damaged(says));
    });
  });

  test("a part is refused when it has one row less", async () => {
    await withStoredRun(2, async ({ sink, part }) => {
      await rewrite(part(0), "SELECT DISTINCT ON (id > 1) *");
      await expect(beginDrive(sink)).rejects.toMatchObject(
        damaged(/it holds 2 rows, rejected 0 and filtered out 0 where the plan has/),
      );
    });
  });

  test("a part that was damaged during the attempt is refused, and the run is not finished", async () => {
    await withStoredRun(2, async (run) => {
      const taken = await beginDrive(run.sink);
      await commit(taken, 2);
      await rewrite(run.part(0), "SELECT id, score::DOUBLE AS score");
      await expect(taken.finish()).rejects.toMatchObject(damaged(/its columns are/));
      expect(await readdir(run.out)).not.toContain("_SUCCESS");
    });
  });

  test.each([
    { what: "is gone", damage: (part: string) => rm(part), says: /is gone since it was committed/ },
    { what: "was cut short", damage: (part: string) => truncate(part, 9), says: /has 9 bytes since it was committed/ },
  ])(
    "a part is refused when it $what since this attempt committed it, and the run is not finished",
    async ({ damage, says }) => {
      await withStoredRun(2, async ({ out, sink, part }) => {
        const run = await beginDrive(sink);
        await commit(run, 2);
        await damage(part(2));
        await expect(run.finish()).rejects.toMatchObject(damaged(says));
        expect(await readdir(out)).not.toContain("_SUCCESS");
      });
    },
  );
});

describe("a plan that is gone or another one", () => {
  const changes: readonly [string, (plan: string) => Promise<void>, RegExp][] = [
    ["gone", (plan) => rm(plan), /the run's plan is gone/],
    ["another", (plan) => writeFile(plan, sealedText({ ...drivePlan, createdBy: "x" })), /has planned the run again/],
    ["none", (plan) => writeFile(plan, "{}"), /it is damaged, or of another version/],
  ];

  test.each(changes)(
    "a plan that is gone or another one (%s) keeps a span from being published",
    async (_, change, says) => {
      await withStoredRun(1, async ({ out, sink, plan }) => {
        const run = await beginDrive(sink);
        await change(plan);
        await expect(commit(run, 1)).rejects.toMatchObject(damaged(says));
        expect((await readdir(out)).filter((name) => name.startsWith("part-"))).toHaveLength(1);
      });
    },
  );

  test.each(changes)(
    "a plan that is gone or another one (%s) keeps the run from being finished",
    async (_, change, says) => {
      await withStoredRun(2, async ({ out, sink, plan }) => {
        const run = await beginDrive(sink);
        await commit(run, 2);
        await change(plan);
        await expect(run.finish()).rejects.toMatchObject(damaged(says));
        expect(await readdir(out)).not.toContain("_manifest.json");
      });
    },
  );

  test("an attempt does not make the folders of a removed output again", async () => {
    await withStoredRun(1, async ({ out, sink }) => {
      const run = await beginDrive(sink);
      await rm(join(out, "_infer-batch"), { recursive: true });
      await expect(commit(run, 1)).rejects.toMatchObject(damaged(/the run's plan is gone/));
      expect(await readdir(out)).not.toContain("_infer-batch");
    });
  });
});

test.each<[string, (path: string) => Promise<void>, RegExp]>([
  ["gone", (path) => rm(path), /_rejects\/part-00001.*: it is gone/],
  ["others", (path) => writeFile(path, "{}\n"), /it is not what was written with its part/],
])("rejects that are %s since their part was committed are refused", async (_, damage, says) => {
  await withStoredRun(2, async ({ out, sink }) => {
    const run = await beginDrive(sink);
    const [name] = await readdir(join(out, "_rejects"));
    await damage(join(out, "_rejects", name ?? ""));
    await expect(run.rejects()[Symbol.asyncIterator]().next()).rejects.toMatchObject(damaged(says));
  });
});
