import { describe, expect, test } from "vitest";
import { columnJson, parseColumn } from "#src/checks/profile/column.js";
import type { PinnedRun } from "#src/run/plan/plan.js";
import { runProfileText } from "#src/run/lifecycle/profile-text.js";
import type { PublishedRun } from "#src/run/lifecycle/published-run.js";
import { columnStats } from "#src/report/column-stats.js";
import { runStats } from "#src/run/status.js";
import { runHere } from "../support/cli.js";
import { scratch } from "../support/job.js";
import { fewRows, lastJson, nightlyJob } from "../support/nights.js";
import { normals, numbersProfile, textsProfile, vectorsProfile } from "../support/run-profiles.js";

describe("infer-batch stats", () => {
  test("infer-batch stats prints the profiles of a published run as tables and as JSON, also of an earlier one by its id", async () => {
    const nights = await nightlyJob(scratch.path, {}, "penguins-lightgbm");
    await nights.night("run", "2026-11-20");
    const { run_id: earlier = "" } = lastJson(await nights.night("status", "2026-11-20", "--json"));
    await nights.rewrite({ checks: undefined });
    await nights.night("run", "2026-11-21");
    const shown = await nights.night("stats", "2026-11-20");
    expect([shown.code, shown.stderr]).toEqual([0, ""]);
    expect(shown.stdout).toMatchInlineSnapshot(`
      "penguins-lightgbm-a2fb5d6c4ad8: published, 344 rows scored, 0 rows rejected
      predictions
        column           type     NULL  NaN      min      p10      p50     p90     max    mean  deviation  most frequent values
        label            int64      0%   0%        0        0        1       2       2  0.9331     0.8916  0 (43.3%), 2 (36.6%), 1 (20.1%)
        probabilities_0  float32    0%   0%   0.0624  0.06494   0.1127    0.91  0.9115  0.4405     0.4011
        probabilities_1  float32    0%   0%  0.03045  0.03293  0.03729  0.8596  0.8648  0.1976       0.31
        probabilities_2  float32    0%   0%  0.05184  0.05275  0.06446  0.9021  0.9043  0.3619     0.3931
      carried through from the input
        column  type   NULL
        row_id  int64    0%
      features
        column             type     NULL     NaN   min   p10   p50   p90   max   mean  deviation  most frequent values
        bill_length_mm     float32    0%  0.581%  32.1  36.6  44.4  50.8  59.6  43.92      5.452
        bill_depth_mm      float32    0%  0.581%  13.1  14.3  17.3  19.5  21.5  17.15      1.972
        flipper_length_mm  float32    0%  0.581%   172   185   197   221   231  200.9      14.04
        body_mass_g        float32    0%  0.581%  2700  3300  4050  5400  6300   4202      800.8
      "
    `);
    const narrow = await runHere(["stats", nights.spec, "--param", "ds=2026-11-20"], { columns: 60 });
    expect(narrow.stdout.slice(narrow.stdout.indexOf("features"))).toMatchInlineSnapshot(`
      "features
        column             NULL     NaN   min   p50   max   mean
            most frequent values
        bill_length_mm       0%  0.581%  32.1  44.4  59.6  43.92
        bill_depth_mm        0%  0.581%  13.1  17.3  21.5  17.15
        flipper_length_mm    0%  0.581%   172   197   231  200.9
        body_mass_g          0%  0.581%  2700  4050  6300   4202
      no room in 60 characters for: type (float32 in all rows),
      p10, p90, deviation
      "
    `);
    const json = lastJson(await nights.night("stats", "2026-11-20", "--json"));
    expect(json).toMatchObject({
      run_id: earlier,
      status: "published",
      date: "2026-11-20",
      rows: 344,
      rejected: 0,
      features: { body_mass_g: { type: "float32", rows: 344, nulls: 0, numbers: { nan: 2, finite: 342, min: 2700 } } },
    });
    const byId = await nights.night("stats", "2026-11-21", "--run", String(earlier), "--json");
    expect(json).toMatchObject({ filtered: 0 });
    expect(lastJson(byId)).toEqual({ ...json, filtered: null }); // no longer known
    expect([json["earlier"], json["outputs"]]).toMatchObject([[], { label: { usual: null } }]);
    const without = await nights.night("stats", "2026-11-21");
    expect(without.stdout).toContain("features: not profiled, because the run was planned without checks");
    expect(without.stdout).toContain("\nusual is the median of 1 published night, 2026-11-20: 344 rows\n");
    const second = lastJson(await nights.night("stats", "2026-11-21", "--json"));
    expect(second).toMatchObject({ earlier: [{ run_id: earlier, date: "2026-11-20", rows: 344 }], features: null });
    expect(second["outputs"]).toMatchObject({ label: { usual: { nights: 1, numbers: { quantiles: { p50: 1 } } } } });
  });

  test("infer-batch stats shows a held run, and says why it cannot show others", async () => {
    const nights = await nightlyJob(scratch.path);
    await nights.night("run", "2026-11-20");
    await nights.rewrite(fewRows);
    await nights.night("run", "2026-11-21");
    expect((await nights.night("stats", "2026-11-21")).stdout).toMatch(
      /: held, 50 rows scored, 0 rows rejected, 392 rows filtered out\n/,
    );
    await nights.night("discard", "2026-11-21");
    expect((await runHere(["run", nights.spec, "--param", "ds=2026-11-22", "--worker", "0/3"])).code).toBe(0);
    const refused = async (date: string, ...args: string[]): Promise<string> => {
      const { code, stderr } = await nights.night("stats", date, ...args);
      return `${code} ${stderr.split("\n")[0]}`;
    };
    expect(await refused("2026-11-21")).toMatch(/^67 .*: it was discarded by \S+ at \S+; its rows are removed$/);
    expect(await refused("2026-11-22")).toMatch(/^64 .*: 1 of 5 spans committed$/);
    expect(await refused("2026-11-23")).toMatch(/^64 .*: it is not planned$/);
    expect(await refused("2026-11-23", "--run", "other-012345678901")).toMatch(
      /^64 error: looking for run other-012345678901: none of the 3 runs of diabetes-mlp that were found has this id$/,
    );
    for (const command of ["stats", "approve", "discard"]) {
      const byId = await runHere([command, "other-012345678901"]);
      expect([byId.code, byId.stderr]).toEqual([
        64,
        expect.stringContaining("infer-batch status job.yaml --run other-012345678901"),
      ]);
    }
  });
});

describe("statistics of a column", () => {
  test("a run is found by its id, though a later one of the series has its date", async () => {
    const at = (hour: string): PublishedRun => ({
      runId: `daily-${hour}`,
      job: "daily",
      params: { ds: "2026-11-22", hour: `2026-11-22T${hour}:00` },
      profile: { sha256: hour, place: "" },
      modelSha256: "m",
      isNormal: true,
      decidedBy: () => Promise.resolve(undefined),
      seconds: () => Promise.resolve(null),
    });
    const none = new Map();
    const sink = {
      find: () => Promise.resolve(undefined),
      published: () => Promise.resolve([at("05"), at("06")]),
      readProfile: ({ runId, date }: PinnedRun) => {
        const numbers = { rows: 1, rejected: 0, outputs: none, carried: none, features: none, slices: none };
        return Promise.resolve(runProfileText({ runId, date, modelSha256: "m", model: { uri: "m" }, ...numbers }));
      },
    };
    const params = { ds: "2026-11-23", hour: "2026-11-23T05:00" };
    const job = { spec: { name: "daily", params }, dateParam: "ds" };
    const found = async (runId: string): Promise<string | undefined> =>
      (await runStats(job as never, sink as never, runId))?.profile.runId;
    expect(await found("daily-05")).toBe("daily-05");
    expect(await found("daily-06")).toBe("daily-06");
    expect(await found("daily-07")).toBeUndefined();
  });

  test("statistics of a text column name only values of enough rows, the most frequent first", () => {
    const texts = textsProfile({ rare: 3, b: 40, a: 57 });
    const profile = parseColumn(columnJson(texts, { nameBytes: 100, namedRows: 20 }));
    expect(columnStats(profile)).toEqual({
      type: "utf8",
      rows: 100,
      nulls: 0,
      different_values: 3,
      values: [
        { value: "a", rows: 57 },
        { value: "b", rows: 40 },
      ],
    });
    expect(columnStats(textsProfile({ rare: 3, b: 40 })).values).toHaveLength(2);
  });

  test("statistics of a column of numbers have quantiles between the extremes, and 0 for zeros", () => {
    const { numbers } = columnStats(numbersProfile([...normals(900), ...Array<number>(100).fill(Number.NaN)]));
    expect(numbers).toMatchObject({ nan: 100, finite: 900, infinite: 0 });
    expect(numbers?.quantiles["p50"]).toBeCloseTo(0, 0);
    expect(columnStats(numbersProfile([0, 0, 0, 1])).numbers).toMatchObject({
      quantiles: { p1: 0, p50: 0, p99: 1 },
    });
    expect(columnStats(numbersProfile([0.1, 0.2, 1e16, -1e16])).numbers?.sum).toBe(0.1 + 0.2);
    expect(columnStats(numbersProfile([])).numbers).toMatchObject({ min: null, sum: null, mean: null, quantiles: {} });
  });

  test("statistics of a column of vectors have dimensions, zeros and norms", () => {
    const { vectors } = columnStats(
      vectorsProfile([
        [3, 4],
        [0, 0],
        [6, 8],
      ]),
    );
    expect(vectors).toMatchObject({ min_dimension: 2, max_dimension: 2, zero: 1, not_finite: 0 });
    expect(vectors?.norms["p99"]).toBeCloseTo(10, 0);
  });
});
