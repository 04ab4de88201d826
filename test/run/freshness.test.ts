import { copyFile, mkdir } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { writeArrow } from "../support/arrow.js";
import { type CliResult, expectEnd, runHere } from "../support/cli.js";
import { identity, smallJob } from "../support/faulty.js";
import { scratch } from "../support/job.js";
import { writeRows } from "../support/parquet.js";
import { useS3 } from "../support/s3.js";
import { shardFixture } from "../support/shards.js";
import { useCredentials } from "../support/s3-output.js";

interface FreshJob {
  /** SQL of the newest value of `updated`; other values are older by days, or NULL. */
  readonly newest: string;
  /** SQL type of `updated`. */
  readonly type?: string;
  readonly freshness: object;
  readonly input?: object;
  readonly timezone?: string;
  readonly args?: readonly string[];
}

const rows = (newest: string, type = "TIMESTAMP"): string =>
  `SELECT i::INTEGER AS id, i::FLOAT AS x, CASE WHEN i % 5 = 4 THEN NULL ELSE (${newest}) - to_days(i::INTEGER % 7) END::${type} AS updated
   FROM range(20) t(i)`;
/** So many days and half an hour before now. */
const daysAgo = (days: number): string =>
  `(now() AT TIME ZONE 'UTC' - INTERVAL '${days * 24 * 60 + 30}' MINUTE)::TIMESTAMP`;

async function smallFreshJob(
  folder: string,
  { newest, type, freshness, input, timezone = "UTC" }: FreshJob,
): ReturnType<typeof smallJob> {
  return await smallJob(folder, {
    model: identity,
    select: rows(newest, type),
    timezone,
    params: { ds: "${today}" },
    input: { freshness: { column: "updated", ...freshness }, ...input },
    output: { columns: ["id"] },
  });
}

async function runFresh(folder: string, job: FreshJob): Promise<CliResult> {
  return await runHere(["run", (await smallFreshJob(folder, job)).spec, ...(job.args ?? [])]);
}

test("a run whose input is older than input.freshness.error_after ends with 75 before anything is planned", async () => {
  await expectEnd(
    runFresh(scratch.path, { newest: daysAgo(3.5), freshness: { error_after: "3d" } }),
    75,
    /planning small: the newest `updated` of the input is \d{4}-\d\d-\d\d \d\d:\d\d:\d\d, 3 days 12 h before now; input\.freshness\.error_after is 3 days\n {2}hint: run the same command again when the input is refreshed/,
  );
});

const yesterday = "((now() AT TIME ZONE 'UTC')::DATE - 1)";

test.each([
  ["younger than both limits", "TIMESTAMP", daysAgo(0.5), undefined],
  ["later than now", "TIMESTAMP", daysAgo(-5), undefined],
  [
    "older than warn_after",
    "TIMESTAMP",
    daysAgo(1.5),
    /:\d\d, 36 h \d+ min before now; input\.freshness\.warn_after is 24 h/,
  ],
  ["the date of yesterday", "DATE", yesterday, undefined],
  ["the date before yesterday", "DATE", `(${yesterday} - 1)`, /before now; input\.freshness\.warn_after is 24 h/],
  ["with a time zone", "TIMESTAMPTZ", `${daysAgo(1.5)} AT TIME ZONE 'UTC'`, /:\d\d UTC, 36 h \d+ min before now/],
  ["in nanoseconds", "TIMESTAMP_NS", daysAgo(1.5), /:\d\d, 36 h \d+ min before now/],
])("a run whose newest input is %s is scored, and warns if that is too old", async (_name, type, newest, warning) => {
  const done = await expectEnd(
    runFresh(scratch.path, { newest, type, freshness: { warn_after: "24h", error_after: "3d" } }),
    0,
  );
  expect(done.stderr).toEqual(
    warning === undefined ? expect.not.stringContaining("newest") : expect.stringMatching(warning),
  );
});

test("the age of the input of an earlier logical date is measured at the end of that date, in the time zone of the job", async () => {
  const job = { newest: "TIMESTAMP '2026-01-04 20:00:00'", freshness: { error_after: "4h" } };
  await expectEnd(runFresh(join(scratch.path, "a"), { ...job, args: ["--param", "ds=2026-01-04"] }), 0);
  await expectEnd(
    runFresh(join(scratch.path, "b"), { ...job, args: ["--param", "ds=2026-01-05"] }),
    75,
    "28 h before the end of 2026-01-05",
  );
});

test.each([
  ["1d", "2026-01-04 23:59:59", "24 h 1 s", "24 h"],
  ["1d", "2026-01-04 23:59:59.5", "24 h 0.5 s", "24 h"],
  ["3d", "2026-01-02 23:00:00", "3 days 1 h", "3 days"],
  ["3d", "2026-01-02 23:59:00", "3 days 1 min", "3 days"],
  ["90s", "2026-01-05 23:58:29.75", "1 min 30.25 s", "1 min 30 s"],
])("an age beyond its limit, %s, never reads like it: %s", async (limit, newest, age, shownLimit) => {
  const job = { newest: `TIMESTAMP '${newest}'`, args: ["--param", "ds=2026-01-05"] };
  await expectEnd(
    runFresh(join(scratch.path, "a"), { ...job, freshness: { error_after: limit } }),
    75,
    `, ${age} before the end of 2026-01-05; input.freshness.error_after is ${shownLimit}\n`,
  );
  const warned = await runFresh(join(scratch.path, "b"), { ...job, freshness: { warn_after: limit } });
  expect(warned.stderr).toContain(
    `, ${age} before the end of 2026-01-05; input.freshness.warn_after is ${shownLimit}\n`,
  );
});

test("a timestamp without a time zone is one of the job's time zone", async () => {
  const job = { newest: "TIMESTAMP '2026-01-04 20:00:00'", timezone: "America/New_York" };
  const args = ["--param", "ds=2026-01-04"];
  await expectEnd(runFresh(join(scratch.path, "a"), { ...job, freshness: { error_after: "4h" }, args }), 0);
  await expectEnd(
    runFresh(join(scratch.path, "b"), { ...job, freshness: { error_after: "3h" }, args }),
    75,
    "4 h before the end of 2026-01-04",
  );
});

test("input.freshness compares the newest value of all files", async () => {
  const job: FreshJob = { newest: daysAgo(9), freshness: { error_after: "3d" } };
  const { spec } = await smallFreshJob(scratch.path, job);
  await writeRows(join(scratch.path, "in/b.parquet"), rows(daysAgo(1)));
  await writeRows(join(scratch.path, "in/c.parquet"), rows(daysAgo(8)));
  await expectEnd(runHere(["run", spec]), 0);
});

test("a freshness column with another type in one file ends with 65, and both files are named", async () => {
  const { spec } = await smallFreshJob(scratch.path, { newest: daysAgo(1), freshness: { error_after: "3d" } });
  await writeRows(join(scratch.path, "in/b.parquet"), rows("now()::DATE", "DATE"));
  await expectEnd(
    runHere(["run", spec]),
    65,
    /column `updated` is date32 in \S+\/b\.parquet, but timestamp\[us\] in \S+\/a\.parquet/,
  );
});

test("a freshness column that is encrypted is an error of the spec", async () => {
  const job = { newest: daysAgo(1), freshness: { column: "x", error_after: "3d" } };
  const { spec } = await smallFreshJob(scratch.path, job);
  await copyFile(shardFixture("encrypted-column"), join(scratch.path, "in/b.parquet"));
  await expectEnd(runHere(["run", spec]), 64, /freshness\.column: column `x` of \S+\/b\.parquet is encrypted/);
});

test("a freshness column without values counts as older than every limit", async () => {
  await expectEnd(
    runFresh(scratch.path, { newest: "NULL::TIMESTAMP", freshness: { error_after: "9999d" } }),
    75,
    "no row of the input has a value in `updated`; input.freshness.error_after is 9999 days",
  );
});

test("input.freshness of a column of folder names compares the newest folder that has rows", async () => {
  const job: FreshJob = {
    newest: "NULL::TIMESTAMP",
    freshness: { column: "dt", error_after: "1d" },
    input: { path: "in/dt=*/*.parquet", partitions: { dt: "date" } },
    args: ["--param", "ds=2026-01-05"],
  };
  const { spec } = await smallFreshJob(scratch.path, job);
  for (const [day, limit] of Object.entries({ "03": 5, "05": 0 })) {
    await mkdir(join(scratch.path, `in/dt=2026-01-${day}`));
    await writeRows(join(scratch.path, `in/dt=2026-01-${day}/a.parquet`), `${rows("NULL::DATE")} LIMIT ${limit}`);
  }
  await expectEnd(
    runHere(["run", spec, ...(job.args ?? [])]),
    75,
    "the newest `dt` of the input is 2026-01-03, 2 days before the end of 2026-01-05",
  );
});

test("input.freshness reads Arrow files", async () => {
  const job: FreshJob = { newest: daysAgo(3.5), freshness: { error_after: "3d" }, input: { path: "a.arrow" } };
  const { spec } = await smallFreshJob(scratch.path, job);
  await writeArrow(join(scratch.path, "a.arrow"), rows("DATE '2026-01-03'", "DATE"), { kind: "file", batchRows: 7 });
  await expectEnd(runHere(["run", spec]), 75, "the newest `updated` of the input is 2026-01-03, ");
});

test.each([
  [{ column: "update" }, 64, "there is no column `update` in"],
  [{ column: "id" }, 64, "column `id` is INTEGER, expected a date or a timestamp"],
  [{ error_after: undefined }, 64, "expected warn_after, error_after or both"],
  [{ warn_after: "2d", error_after: "1d" }, 64, "warn_after is longer than error_after"],
])(
  "input.freshness that cannot be checked is an error of the spec, with its place: %j",
  async (freshness, code, message) => {
    const job = { newest: daysAgo(0), freshness: { error_after: "1d", ...freshness } };
    await expectEnd(runFresh(scratch.path, job), code, message, /job\.yaml:\d+:\d+: input\.freshness/);
  },
);

const s3 = useS3();
s3.describe("input.freshness of shards in S3", () => {
  test("input.freshness of shards in S3 fetches its column in every row group", async () => {
    const bucket = await s3.server().createBucket();
    useCredentials();
    const newest = daysAgo(3.5);
    const job: FreshJob = {
      newest,
      freshness: { error_after: "3d" },
      input: {
        path: `s3://${bucket.name}/in/*.parquet`,
        endpoint: `http://127.0.0.1:${s3.server().port}`,
        spool: { path: "spool" },
      },
    };
    const { spec } = await smallFreshJob(scratch.path, job);
    const file = join(scratch.path, "b.parquet");
    await writeRows(file, `SELECT * FROM (${rows(newest)}) ORDER BY updated NULLS FIRST`, "ROW_GROUP_SIZE 4");
    await bucket.putFile("in/a.parquet", join(scratch.path, "in/a.parquet"));
    await bucket.putFile("in/b.parquet", file);
    await expectEnd(runHere(["run", spec]), 75, "3 days 12 h before now");
  });
});
