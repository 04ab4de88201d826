import { cp, readdir, rm, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { type CliResult, expectEnd, projectFolder, runHere } from "../support/cli.js";
import { scratchFolder, type SpecOverrides } from "../support/job.js";
import { fewRows, heldNight, lastJson, nightlyJob, type Nights } from "../support/nights.js";
import { approvalSql } from "../support/pg-staged.js";
import { type PostgresServer, usePostgres } from "../support/postgres.js";
import { useCredentials } from "../support/s3-output.js";
import { type S3Server, useS3 } from "../support/s3.js";
import { firstOf, torture } from "../support/torture.js";

const date = "2026-11-21";

/** A held night at some target. The night before is published. */
interface HeldNight extends AsyncDisposable {
  readonly folder: string;
  readonly nights: Nights;
  readonly runId: string;
  /** A spec whose target refuses to plan a run; undefined: this one refuses none. */
  readonly refused?: SpecOverrides;
  /** Takes span 2 of the held run away. */
  loseSpan(): Promise<void>;
  /** Makes rows of the held run unreadable: cuts off the part of span 2, or drops the staging table. */
  damageRows(): Promise<void>;
  /** Stores that ann has approved the run, and publishes nothing. */
  approve(): Promise<void>;
  /** What `status` says of the run, or of the one in whose place it came. */
  status(): Promise<Record<string, unknown>>;
}

type OpenHeldNight = () => Promise<HeldNight>;

const approval = { kind: "approved", by: "ann", at: "2026-11-21T06:00:00.000Z", reason: null, asBaseline: false };

function heldAt(
  folder: string,
  { nights, runId }: Pick<HeldNight, "nights" | "runId">,
): Pick<HeldNight, "folder" | "nights" | "runId" | "status"> {
  return { folder, nights, runId, status: async () => lastJson(await nights.night("status", date, "--json")) };
}

/** Name of a span's part while it is staged. */
const isLost = (name: string): boolean => /part-00002.*staged$/.test(name);

async function heldOnDisk(): Promise<HeldNight> {
  const scratch = await scratchFolder();
  const nights = await nightlyJob(scratch.path);
  const runId = await heldNight(nights);
  const control = join(nights.folder(date), "_infer-batch", runId);
  const partToLose = async (): Promise<string> =>
    join(control, (await readdir(control, { recursive: true })).find(isLost) ?? "none");
  return {
    ...heldAt(scratch.path, { nights, runId }),
    async loseSpan() {
      await rm(await partToLose());
    },
    async damageRows() {
      await truncate(await partToLose(), 100);
    },
    approve: () => writeFile(join(control, "decision.json"), `${JSON.stringify(approval)}\n`),
    [Symbol.asyncDispose]: () => scratch[Symbol.asyncDispose](),
  };
}

async function heldInS3(server: S3Server): Promise<HeldNight> {
  useCredentials();
  const scratch = await scratchFolder();
  const bucket = await server.createBucket();
  const parquet = {
    path: `s3://${bucket.name}/lake/dt=\${ds}`,
    endpoint: `http://127.0.0.1:${server.port}`,
    spool: { path: "spool" },
  };
  const nights = await nightlyJob(scratch.path, { output: { parquet } });
  const runId = await heldNight(nights);
  const keyToLose = async (): Promise<string> => {
    const key = (await bucket.keys()).find(isLost) ?? "none";
    expect(key).toContain(runId);
    return key;
  };
  return {
    ...heldAt(scratch.path, { nights, runId }),
    async loseSpan() {
      await bucket.remove(await keyToLose());
    },
    async damageRows() {
      await bucket.put(await keyToLose(), "cut off");
    },
    approve: () => bucket.put(`lake/dt=${date}/_infer-batch/${runId}/decision.json`, `${JSON.stringify(approval)}\n`),
    [Symbol.asyncDispose]: () => scratch[Symbol.asyncDispose](),
  };
}

async function heldInTable(
  server: PostgresServer,
  mode: "append" | "upsert" | "replace" = "append",
): Promise<HeldNight> {
  const scratch = await scratchFolder();
  const database = await server.createDatabase();
  const key = mode === "append" ? [] : ["id"];
  const table = { url: database.url, table: "scores.predictions", mode, key, timeouts: { lock: 1 } };
  const nights = await nightlyJob(scratch.path, { output: { parquet: undefined, postgres: table } });
  const runId = await heldNight(nights);
  return {
    ...heldAt(scratch.path, { nights, runId }),
    refused: { output: { parquet: undefined, postgres: table, lineage: true } }, // with columns that the table lacks
    async loseSpan() {
      await database.query(`DELETE FROM infer_batch.spans WHERE span = 2 AND run_id = '${runId}'`);
    },
    async damageRows() {
      const [staging] = await database.query(
        "SELECT format('%I.%I', schemaname, tablename) AS name FROM pg_tables WHERE tablename ~ '^staging_|__staging_'",
      );
      await database.query(`DROP TABLE ${String(staging?.["name"])}`);
    },
    async approve() {
      await database.query(approvalSql(runId));
    },
    async [Symbol.asyncDispose]() {
      await database[Symbol.asyncDispose]();
      await scratch[Symbol.asyncDispose]();
    },
  };
}

const postgres = usePostgres();
const s3 = useS3();

const tables = join(projectFolder, "fixtures/data/diabetes");

const inS3: OpenHeldNight = () => heldInS3(s3.server());
const inTable: OpenHeldNight = () => heldInTable(postgres.server());

/** Specs with which an attempt ends before it plans, and its exit code; and what is then decided on the held run. */
const mistakes: readonly { decide: "approve" | "discard"; of: readonly [string, SpecOverrides, number][] }[] = [
  {
    decide: "approve",
    of: [
      ["a column that is not there", { input: { where: "idd < 500" } }, 64],
      ["an input that does not come in time", { input: { path: "gone/*.parquet", wait: "1s" } }, 75],
    ],
  },
  {
    decide: "discard",
    of: [
      ["an input that is missing", { input: { path: "gone/*.parquet" } }, 75],
      ["no model", { model: { path: "gone.onnx" } }, 64],
    ],
  },
];

function newRunsThatFail(open: OpenHeldNight): void {
  test.each(mistakes)(
    "a new run that ends before it is planned leaves the held run as it was: then $decide",
    async ({ decide, of }) => {
      await using held = await open();
      const { nights, runId, refused } = held;
      const more: typeof of = refused === undefined ? [] : [["a table without some columns", refused, 64]];
      for (const [what, overrides, code] of [...of, ...more]) {
        await nights.rewrite(overrides);
        const failed = await nights.night("run", date, "--new-run");
        expect(failed.code, `${what}: ${failed.stderr}`).toBe(code);
        await nights.rewrite(fewRows);
        expect(await held.status(), what).toMatchObject({ run_id: runId, status: "held", decision: null });
      }
      const decided = await expectEnd(nights.night(decide, date, "--json"), 0);
      expect(lastJson(decided)).toMatchObject({
        run_id: runId,
        decision: { kind: decide === "approve" ? "approved" : "discarded" },
      });
    },
  );
}

/** Waits for its input as the run that takes the place of a held one; calls `meanwhile`, after which the input comes. */
async function waitForInput({ folder, nights }: HeldNight, meanwhile: () => Promise<void>): Promise<CliResult> {
  await nights.rewrite({ input: { path: "later/*.parquet", wait: "20s" } });
  let coming: Promise<void> | undefined;
  const ended = await runHere(["run", nights.spec, "--param", `ds=${date}`, "--new-run", "--json"], {
    onStderr: (seen) => {
      if (seen.includes("checking again for up to")) {
        coming ??= meanwhile().then(() => cp(tables, join(folder, "later"), { recursive: true }));
      }
    },
  });
  await coming;
  return ended;
}

function approvalMeanwhile(open: OpenHeldNight, afterApproval: { readonly code: number }): void {
  test("a held run that is approved while a new run waits for its input is published, and the new run comes after it", async () => {
    await using held = await open();
    const { runId } = held;
    const next = await expectEnd(
      waitForInput(held, async () => {
        expect(await held.status()).toMatchObject({ status: "held" });
        await held.approve();
      }),
      afterApproval.code,
      `published run ${runId}`,
    );
    const { run_id, status, decision } = await held.status();
    if (next.code === 0) {
      expect([run_id, status]).toEqual([`${runId}-r2`, "published"]);
    } else {
      expect([run_id, status, decision]).toEqual([runId, "published", expect.objectContaining({ by: "ann" })]);
    }
  });
}

function newRunMeanwhile(open: OpenHeldNight): void {
  test("two new runs that wait for their input in place of one held run are one run", async () => {
    await using held = await open();
    const { nights, runId } = held;
    let other: Promise<CliResult> | undefined;
    const first = await waitForInput(held, async () => {
      other = nights.night("run", date, "--new-run", "--json");
    });
    const second = await other;
    expect([first.code, second?.code], `${first.stderr}\n${second?.stderr}`).toEqual([0, 0]);
    expect(await held.status()).toMatchObject({ run_id: `${runId}-r2`, status: "published" });
  });
}

function lostSpans(open: OpenHeldNight): void {
  test("a held run that has lost a span is not approved; it is discarded, and scored again", async () => {
    await using held = await open();
    const { nights, runId } = held;
    await held.loseSpan();
    const refused = await nights.night("approve", date);
    const says =
      /span 2 of 5 is no longer committed\n.*cannot be published: restore .*infer-batch discard \S+ --param ds=2026-11-21 --run \S+; or score again.*--new-run/;
    expect([refused.code, refused.stderr]).toEqual([66, expect.stringMatching(says)]);
    const status = await expectEnd(nights.night("status", date, "--json"), 66, says);
    expect(lastJson(status)).toMatchObject({
      status: "held",
      decision: null,
      damage: [expect.stringMatching(/span 2/)],
    });
    const still = await nights.night("run", date);
    const lost =
      /^ {2}checking run \S+: span 2 of 5 is no longer committed\n(?:.*\n)+.*restore what is lost: infer-batch approve /m;
    expect([still.code, still.stderr]).toEqual([67, expect.stringMatching(lost)]);
    for (const dryRun of ["plan", "validate"]) {
      const alike = await nights.night(dryRun, date);
      expect([alike.code, alike.stderr], dryRun).toEqual([67, still.stderr]);
    }

    await expectEnd(nights.night("discard", date), 0);
    await expectScoredAgain(nights, runId);
  });

  test("a held run that has lost a span is replaced by a new run", async () => {
    await using held = await open();
    await held.loseSpan();
    await expectScoredAgain(held.nights, held.runId);
  });

  test("an approved run that has lost a span is replaced by a new run, and not published by any other command", async () => {
    await using held = await open();
    const { nights, runId } = held;
    await held.loseSpan();
    await held.approve();
    for (const command of ["run", "approve", "discard", "status"]) {
      const refused = await nights.night(command, date);
      expect([refused.code, refused.stderr], command).toEqual([66, expect.stringContaining("--new-run")]);
      expect(refused.stderr, command).not.toMatch(/scored anew|scores that span/);
    }
    await expectScoredAgain(nights, runId);
  });
}

function damagedRows(open: OpenHeldNight): void {
  test("a held run whose rows are damaged or gone is not approved; it is discarded, and scored again", async () => {
    await using held = await open();
    const { nights, runId } = held;
    await held.damageRows();
    for (const command of ["plan", "validate", "run", "status", "approve"]) {
      const refused = await nights.night(command, date);
      expect([refused.code, refused.stderr], command).toEqual([
        66,
        expect.stringMatching(/hint: restore .*discard .*--new-run/),
      ]);
    }
    expect(await held.status()).toMatchObject({ run_id: runId, status: "damaged", decision: null });

    const discarded = await nights.night("discard", date, "--json");
    expect([discarded.code, discarded.stderr]).toEqual([0, ""]);
    expect(lastJson(discarded)).toMatchObject({ run_id: runId, status: "discarded", decision: { kind: "discarded" } });
    expect(await held.status()).toMatchObject({ run_id: runId, status: "discarded", damage: [] });
    for (const [command, code] of [
      ["run", 67],
      ["approve", 66],
      ["discard", 0],
    ] as const) {
      const ended = await nights.night(command, date);
      expect(ended.code, `${command}: ${ended.stderr}`).toBe(code);
    }
    await expectScoredAgain(nights, runId);
  });

  test("an approved run whose rows are damaged or gone is not discarded", async () => {
    await using held = await open();
    await held.damageRows();
    await held.approve();
    await expectEnd(held.nights.night("discard", date), 66, /approved by ann.*--new-run/s);
    await expectScoredAgain(held.nights, held.runId);
  });
}

async function expectScoredAgain(nights: HeldNight["nights"], runId: string): Promise<void> {
  await nights.rewrite({});
  const next = await expectEnd(nights.night("run", date, "--new-run", "--json"), 0);
  expect(lastJson(next)).toMatchObject({ run_id: `${runId}-r2`, status: "complete", rows_scored: 442 });
}

describe("a held run on a disk", () => {
  newRunsThatFail(heldOnDisk);
  approvalMeanwhile(heldOnDisk, { code: 0 });
  newRunMeanwhile(heldOnDisk);
  lostSpans(heldOnDisk);
  damagedRows(heldOnDisk);

  test("a damaged part of a held run is not said to be scored anew", async () => {
    await using held = await heldOnDisk();
    const control = join(held.nights.folder(date), "_infer-batch", held.runId);
    const name = (await readdir(control, { recursive: true })).find((path) => path.endsWith(".staged")) ?? "";
    await truncate(join(control, name), 100);
    await expectEnd(
      held.nights.night("approve", date),
      66,
      /hint: restore what was committed; or, if the run is held, discard it; or, if it is neither held nor approved, delete/,
    );
    await expectScoredAgain(held.nights, held.runId);
  });
});

s3.describe("a held run in S3", () => {
  // What is decided meanwhile, crash/remote-races.test.ts tries there.
  describe.runIf(torture)("as on a disk", () => {
    lostSpans(inS3);
    newRunsThatFail(inS3);
  });
});

postgres.describe("a held run in Postgres", () => {
  approvalMeanwhile(inTable, { code: 64 }); // append keeps the rows of the approved run
  lostSpans(inTable);
  describe.runIf(torture)("as on a disk", () => {
    newRunMeanwhile(inTable);
    newRunsThatFail(inTable);
    approvalMeanwhile(() => heldInTable(postgres.server(), "upsert"), { code: 0 });
  });
  describe.each(firstOf(["replace", "append"] as const))("in mode %s", (mode) => {
    damagedRows(() => heldInTable(postgres.server(), mode));
  });

  test("an unfinished run whose staging table was dropped is discarded", async () => {
    await using held = await heldInTable(postgres.server());
    const { nights } = held;
    await expectEnd(nights.night("discard", date), 0);
    await expectEnd(nights.night("run", "2026-11-22", "--worker", "0/2"), 0);
    await held.damageRows();
    await expectEnd(nights.night("run", "2026-11-22"), 66);
    const discarded = await nights.night("discard", "2026-11-22");
    expect([discarded.code, discarded.stderr]).toEqual([0, ""]);
    await expectEnd(nights.night("run", "2026-11-22"), 67);
  });
});
