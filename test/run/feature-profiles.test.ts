import { readdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { fixtureAsArrow, writeArrow } from "../support/arrow.js";
import { expectEnd, runHere } from "../support/cli.js";
import { smallJob } from "../support/faulty.js";
import { scratch, scratchFolder, type SpecOverrides, writeSpec } from "../support/job.js";
import type { SmallModel } from "../support/onnx.js";
import { watchCommand } from "../support/watched.js";
import { fixtureNamed } from "../support/world.js";
import { firstOf } from "../support/torture.js";

type Profiles = readonly (readonly [string, Readonly<Record<string, unknown>>])[];

/** The profiles of features that the published run of a folder left. */
async function featuresIn(out: string): Promise<Profiles> {
  const control = join(out, "_infer-batch");
  const run = (await readdir(control)).find((name) => name !== "run.json") ?? "";
  const text = await readFile(join(control, run, "profile.json"), "utf8");
  return (JSON.parse(text) as { features: Profiles }).features;
}

/** The rows of each value that a profile names. */
function namedRowsIn({ values, norms }: Profiles[number][1]): number[] {
  return [values, (norms as { readonly values?: unknown } | undefined)?.values]
    .filter((counts) => counts instanceof Object && !Array.isArray(counts))
    .flatMap((counts) => Object.values(counts as Readonly<Record<string, number>>));
}

/** The mean of four features: NaN, and so rejected, if one of them is NULL. */
const meanOfFour: SmallModel = {
  inputs: [{ name: "features", dtype: "float32", shape: ["N", 4] }],
  outputs: [{ name: "score", dtype: "float32", shape: ["N", 1] }],
  nodes: [{ op: "ReduceMean", from: ["features"], to: "score", attributes: { axes: [1], keepdims: 1 } }],
};
const rows = 70_000;
const tableOf = (count: number): string => `SELECT range AS id, (range * 37 % 1009)::FLOAT AS a, sin(range)::FLOAT AS b,
  CASE WHEN range % 997 = 0 THEN NULL ELSE range % 3 END::FLOAT AS c, (1e9 / (range + 1))::FLOAT AS d FROM range(${count})`;
const select = tableOf(rows);
const job = { checks: { rejects: "100%" }, on_bad_row: "reject", commit_rows: 20_000, engine: { threads: 2 } };
const bound = { inputs: { features: ["a", "b", "c", "d"] }, missing: "nan" };

interface Way {
  readonly overrides?: SpecOverrides;
  readonly workers?: readonly string[];
  /** A moment of the first attempt at which it is killed. */
  readonly killed?: string;
  readonly format?: "arrows";
}

const ways: Readonly<Record<string, Way>> = {
  "other spans": { overrides: { commit_rows: 3000 } },
  "one thread": { overrides: { engine: { threads: 1, batch_size: 1000 } } },
  "an Arrow stream": { format: "arrows" },
  "three workers": { workers: ["2/3", "0/3", "1/3"] },
  "a killed attempt and another": {
    killed: "before link control/parts/part-00001 #1",
    overrides: { commit_rows: 9000 },
  },
};

async function profilesOf({ overrides = {}, workers, killed, format }: Way, table = select): Promise<Profiles> {
  await using folder = await scratchFolder();
  const about = { model: meanOfFour, select: table, modelSpec: bound, ...job };
  const { spec, out, rewrite } = await smallJob(folder.path, about);
  if (format !== undefined) {
    await writeArrow(join(folder.path, `in/a.${format}`), table, { kind: "stream", batchRows: 9999 });
    await rm(join(folder.path, "in/a.parquet"));
  }
  const { input, ...rest } = overrides;
  const path = { input: { path: `in/*.${format ?? "parquet"}`, ...input } };
  await rewrite({ ...job, output: { columns: ["id"] }, model: bound, ...path, ...rest });
  if (killed !== undefined) {
    const result = await watchCommand(["run", spec], { CRASH_ROOT: out, CRASH_AT: killed });
    expect(result.signal, result.stderr).toBe("SIGKILL");
  }
  for (const worker of workers ?? ["0/1"]) {
    await expectEnd(runHere(["run", spec, "--worker", worker, "--json"]), 0);
  }
  return await featuresIn(out);
}

describe("profiles of the features of a run", () => {
  let whole: Promise<Profiles> | undefined;
  const wholeRun = (): Promise<Profiles> => (whole ??= profilesOf({}));

  test("profiles of the features of a run describe a sample of its rows", async () => {
    const found = new Map(await wholeRun());
    expect([...found.keys()]).toEqual(["a", "b", "c", "d"]);
    expect(found.get("a")?.["rows"]).toBe(rows / 8); // of each eight rows one is sampled
  });

  test.each(firstOf(Object.keys(ways), 2))(
    "profiles of the features of a run are those of one plain attempt with %s",
    async (name) => {
      expect(await profilesOf(ways[name] ?? {})).toEqual(await wholeRun());
    },
  );
});

const filtered = (way: Way, where: string): Way => ({
  ...way,
  overrides: { ...way.overrides, input: { ...way.overrides?.input, where } },
});

describe("profiles of the features of a run whose filter keeps few rows", () => {
  // With a filter, eight times as many rows are sampled: all of 70,000.
  const kept = "id % 10 = 3";

  test("profiles of the features of filtered rows are those of a table that has no other rows", async () => {
    const alone = await profilesOf({}, `SELECT * FROM (${select}) WHERE ${kept}`);
    expect(new Map(alone).get("a")).toMatchObject({ rows: 7000 });
    expect(await profilesOf(filtered({}, kept))).toEqual(alone);
  });

  const where = "id % 3 = 0 and id < 60000";
  const large = tableOf(140_000);
  let alone: Promise<Profiles> | undefined;
  const plainRun = (): Promise<Profiles> => (alone ??= profilesOf(filtered({}, where), large));

  test.each(firstOf(["three workers", "a killed attempt and another", "an Arrow stream"]))(
    "profiles of the features of filtered rows are those of one plain attempt with %s",
    async (name) => {
      const plain = await plainRun();
      // Of 20,000 rows, about every second one.
      const { rows: sampled } = new Map(plain).get("a") ?? {};
      expect(sampled).toBeGreaterThan(8192);
      expect(sampled).toBeLessThan(16_384);
      expect(await profilesOf(filtered(ways[name] ?? {}, where), large)).toEqual(plain);
    },
  );
});

test.each(firstOf(["penguins-pipeline", "embedding-mlp", "sentences-mean"], 2))(
  "profiles of features that are texts, whole numbers or lists do not depend on the format: %s",
  async (name) => {
    const fixture = fixtureNamed(name);
    const profiles = await Promise.all(
      [{}, { where: "true" }, { path: "in/*.arrow" }].map(async (input) => {
        await using folder = await scratchFolder();
        if ("path" in input) {
          await fixtureAsArrow(folder.path, fixture.table, "file");
        }
        const from = "path" in input ? { path: "*.arrow" } : input;
        const spec = await writeSpec(folder.path, fixture, { checks: {}, input: from, commit_rows: 100 });
        await expectEnd(runHere(["run", spec]), 0);
        return await featuresIn(join(folder.path, "out"));
      }),
    );
    expect(profiles[0]?.length).toBeGreaterThan(0);
    expect(Math.min(...(profiles[0] ?? []).flatMap(([, profile]) => namedRowsIn(profile)))).toBeGreaterThanOrEqual(20);
    expect(profiles[1]).toEqual(profiles[0]);
    expect(profiles[2]).toEqual(profiles[0]);
  },
);

test("a key column that the model reads has no value in the profile of its run", async () => {
  const spec = await writeSpec(scratch.path, fixtureNamed("diabetes-mlp"), {
    checks: { unique: ["bmi"], on_fail: "warn" },
    model: { inputs: { features: ["age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6"] } },
    output: { columns: ["bmi"] },
  });
  await expectEnd(runHere(["run", spec]), 0);
  const found = new Map(await featuresIn(join(scratch.path, "out")));
  expect(found.get("bmi")).toEqual({ kind: "rows", type: "float32", rows: 442, nulls: 0 });
  expect(found.get("age")).toMatchObject({ kind: "numbers" });
});
