import { cp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { type CliResult, expectEnd, runCommand } from "../support/cli.js";
import { scratch } from "../support/job.js";
import { expectScored, type LakeAnswer, sparkAnswers, tableOf, writeLakeJob } from "../support/lakes.js";
import { runInS3, upload } from "../support/s3-job.js";
import { useS3 } from "../support/s3.js";

const cases = [...sparkAnswers()];

function versionOf({ at }: LakeAnswer): string {
  return at === "latest" ? at : String(Object.values(at as object)[0]);
}

async function expectAnswer(columns: readonly string[], { rows }: LakeAnswer, ran: CliResult): Promise<void> {
  expect(ran.stderr).not.toContain("error");
  expect(ran.code).toBe(0);
  await expectScored(scratch.path, rows, columns);
  const told = JSON.parse(ran.stdout) as Record<"rows_scored" | "rows_filtered" | "rows_planned", number>;
  expect(told.rows_scored).toBe(rows.length);
  expect(told.rows_scored + told.rows_filtered).toBe(told.rows_planned);
}

describe("tables that Spark wrote are scored as Spark reads them, on a disk:", () => {
  test.each(cases)("%s", async (name, answer) => {
    const columns = Object.keys(answer.rows[0] ?? {});
    await cp(tableOf(name, answer), join(scratch.path, "lake/table"), { recursive: true });
    // Relative to the spec, whatever folder the command is started in.
    const spec = await writeLakeJob(scratch.path, { table: "./lake/../lake//table/", at: versionOf(answer), columns });

    await expectAnswer(columns, answer, await runCommand(["run", spec, "--json"]));
  });
});

test("files of partitions that the filter leaves out are not planned, and rows that it may keep are", async () => {
  const answer = sparkAnswers().get("mapped");
  const rows = answer?.rows ?? [];
  const columns = Object.keys(rows[0] ?? {});
  const table = tableOf("mapped", answer ?? never());
  for (const [where, isKept, planned] of [
    ["dt = '2026-11-02' AND id % 2 = 0", ({ dt, id }: Row) => dt === "2026-11-02" && Number(id) % 2 === 0, 40],
    [
      "id > 7 AND (dt <= '2026-11-01' AND y >= 0)",
      ({ dt, id }: Row) => String(dt) <= "2026-11-01" && Number(id) > 7,
      40,
    ],
    ["dt = '2026-11-02' OR id < 7", ({ dt, id }: Row) => dt === "2026-11-02" || Number(id) < 7, 125],
    ["dt = 'none'", () => false, 40],
    ["dt IS NOT NULL AND upper(dt)[1] = '2' AND id >= 0", () => true, 125],
  ] as const) {
    const spec = await writeLakeJob(scratch.path, { table, columns, input: { where }, more: { params: { where } } });
    const { code, stdout, stderr } = await runCommand(["run", spec, "--json", "--new-run"]);
    expect(code, stderr).toBe(0);
    const expected = rows.filter(isKept);
    expect(JSON.parse(stdout)).toMatchObject({ rows_planned: planned, rows_scored: expected.length });
    await expectScored(scratch.path, expected, columns);
    expect((await runCommand(["run", spec, "--json"])).stdout).toContain("already_complete");
    await rm(join(scratch.path, "out"), { recursive: true });
  }
});

test("a challenger scores the files of a table that the run has planned", async () => {
  const answer = sparkAnswers().get("mapped") ?? never();
  const columns = Object.keys(answer.rows[0] ?? {});
  const more = { challenger: { path: "model.onnx", inputs: { x: columns.slice(0, 1) } } };
  const input = { where: "dt = '2026-11-02'" };
  const spec = await writeLakeJob(scratch.path, { table: tableOf("mapped", answer), columns, input, more });

  const ran = await runCommand(["run", spec, "--json"]);

  expect(ran.code, ran.stderr).toBe(0);
  expect(JSON.parse(ran.stdout)).toMatchObject({ rows_planned: 40 });
  expect(ran.stderr).toContain("34 rows compared");
});

test("a run whose removed rows nothing tells any more is given up with --new-run", async () => {
  const answer = sparkAnswers().get("mapped@4") ?? never();
  const columns = Object.keys(answer.rows[0] ?? {});
  const table = join(scratch.path, "table");
  await cp(tableOf("mapped", answer), table, { recursive: true });
  const log = join(table, "_delta_log");
  for (const name of await readdir(log)) {
    await (Number.parseInt(name, 10) <= 4 ? undefined : rm(join(log, name)));
  }
  for (const name of (await readdir(table)).filter((each) => each.endsWith(".bin"))) {
    await rm(join(table, name));
  }
  const spec = await writeLakeJob(scratch.path, { table, columns });
  await expectEnd(runCommand(["run", spec]), 66, "--new-run");

  // The next version has these rows again.
  let restored = 0;
  const lines = (await readFile(join(log, "00000000000000000004.json"), "utf8")).trim().split("\n");
  const actions = lines.flatMap((line) => {
    const { add } = JSON.parse(line) as { add?: { path: string; deletionVector?: { cardinality: number } } };
    restored += add?.deletionVector?.cardinality ?? 0;
    return add?.deletionVector === undefined ? [] : [{ remove: add }, { add: { ...add, deletionVector: undefined } }];
  });
  await writeFile(join(log, "00000000000000000005.json"), actions.map((action) => JSON.stringify(action)).join("\n"));

  const { code, stdout, stderr } = await runCommand(["run", spec, "--json", "--new-run"]);

  expect(code, stderr).toBe(0);
  expect(restored).toBeGreaterThan(0);
  expect(JSON.parse(stdout)).toMatchObject({ rows_scored: answer.rows.length + restored });
});

test("a table that names a file twice, whose rows other engines read twice, is refused", async () => {
  const answer = sparkAnswers().get("mapped") ?? never();
  const table = join(scratch.path, "table");
  await cp(tableOf("mapped", answer), table, { recursive: true });
  const log = join(table, "_delta_log");
  const lines = (await readFile(join(log, "00000000000000000009.json"), "utf8")).trim().split("\n");
  const adds = lines.flatMap((line) => (JSON.parse(line) as { add?: object }).add ?? []);
  expect(adds).toHaveLength(1);
  const again = { add: { ...adds[0], deletionVector: undefined } };
  await writeFile(join(log, "00000000000000000010.json"), JSON.stringify(again));

  const spec = await writeLakeJob(scratch.path, { table, columns: Object.keys(answer.rows[0] ?? {}) });

  await expectEnd(runCommand(["run", spec]), 65, "names this file twice");
});

type Row = Readonly<Record<string, unknown>>;

function never(): never {
  throw new Error("the fixture is gone");
}

const s3 = useS3();

s3.describe("and in S3:", () => {
  test.each(cases)("%s", async (name, answer) => {
    const bucket = await s3.server().createBucket();
    await upload(bucket, tableOf(name, answer), "lake/table/");
    const columns = Object.keys(answer.rows[0] ?? {});
    const job = { table: `s3://${bucket.name}/lake/table/`, at: versionOf(answer), columns };
    const spec = await writeLakeJob(scratch.path, { ...job, input: { spool: { path: "spool" } } });

    await expectAnswer(columns, answer, await runInS3(["run", spec, "--json"], { port: s3.server().port }));
  });
});
