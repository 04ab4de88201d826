import { copyFile, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import {
  expectFigures,
  first,
  type Found,
  others,
  outputs,
  python,
  second,
  shifted,
  swapped,
} from "../support/challenger.js";
import { projectFolder, runHere } from "../support/cli.js";
import { scratch, type SpecOverrides, writeSpec } from "../support/job.js";
import { lastJson } from "../support/nights.js";
import { writePgSpec } from "../support/pg-job.js";
import { usePostgres } from "../support/postgres.js";
import { fixtureNamed } from "../support/world.js";

function jobOf({ challenger, ...overrides }: SpecOverrides & { readonly challenger?: object } = {}): SpecOverrides {
  return {
    checks: {},
    commit_rows: 100,
    model: { outputs },
    challenger: { path: shifted, outputs, inputs: swapped, tolerance: python.tolerance, ...challenger },
    ...overrides,
  };
}

const write = async (folder: string, overrides?: Parameters<typeof jobOf>[0]): Promise<string> =>
  await writeSpec(folder, fixtureNamed("cancer-logistic"), jobOf(overrides));

/** The challenger's part of the stored verdict, as text. */
async function verdictIn(folder: string): Promise<string> {
  const names = await readdir(join(folder, "out"), { recursive: true });
  const name = names.find((path) => path.endsWith("verdict.json")) ?? "";
  const verdict = JSON.parse(await readFile(join(folder, "out", name), "utf8")) as { readonly challenger: object };
  expect(verdict.challenger).toMatchObject({ compared: expect.any(Number) as number });
  return JSON.stringify(verdict.challenger);
}

const command = async (...args: string[]): Promise<Record<string, unknown>> => {
  const done = await runHere([...args, "--json"]);
  expect(done.code, done.stderr).toBe(0);
  return lastJson(done);
};

const statsOf = async (spec: string): Promise<Found> => (await command("stats", spec))["challenger"] as Found;

describe("a run with a challenger", () => {
  test("plan and validate name the challenger, what is compared of it, and where its predictions are kept", async () => {
    const spec = await write(scratch.path, {
      model: { outputs: { ...outputs, other: "probabilities[0]" } },
      challenger: { output: { parquet: { path: "kept" } } },
    });
    const [planned, valid, json] = [
      await runHere(["plan", spec]),
      await runHere(["validate", spec]),
      await command("plan", spec),
    ];
    const text = `challenger ${shifted}, sha256 SHA
           compared: label, p, probabilities; numbers that differ by more than 0.05 are counted
           not compared: other, only the champion has it (float32)
           its predictions are kept in kept
`;
    for (const { stdout } of [planned, valid]) {
      expect(stdout.replaceAll(/sha256 [\da-f]{12}…/g, "sha256 SHA")).toContain(text);
    }
    expect(json["challenger"]).toMatchObject({
      uri: shifted,
      compared: ["label", "p", "probabilities"],
      not_compared: { other: "only the champion has it (float32)" },
      kept_in: "kept",
    });
    const unkept = await write(scratch.path);
    expect((await runHere(["plan", unkept])).stdout).toContain("           its predictions are not kept\n");
    expect((await command("plan", unkept))["challenger"]).toMatchObject({ kept_in: null });
  });

  test("the agreement in the report, the verdict, status and stats is that of numpy and scipy, and only stats has keys", async () => {
    const spec = await write(scratch.path, { report: { html: "page.html" } });
    const done = await runHere(["run", spec, "--json"]);
    expect(done.code, done.stderr).toBe(0);
    expectFigures(lastJson(done)["challenger"] as Found, python.swapped);
    expectFigures((await command("status", spec))["challenger"] as Found, python.swapped);
    const stats = await statsOf(spec);
    expectFigures(stats, python.swapped);
    const ids = stats.outputs.p.most_different.map(({ keys }) => keys?.id);
    expect(ids).toEqual(python.swapped.p.most_different);
    const [id = ""] = ids;
    expect(`${done.stdout}${done.stderr}`).not.toContain(id);
    expect(done.stderr).toMatch(/challenger .*shifted\.onnx: 569 rows compared\n.*label: 97\.72% of the rows equal/);
    expect(await verdictIn(scratch.path)).toContain(id);
    expect(await readFile(join(scratch.path, "page.html"), "utf8")).toContain(`<tr><th>${id}</th>`);
    const parts = (await readdir(join(scratch.path, "out"))).filter((name) => name.endsWith(".parquet"));
    expect(parts).toHaveLength(6); // and no other predictions
  });

  test("rows that only the challenger cannot score are counted by reason, and are neither rejected nor compared", async () => {
    const spec = await write(scratch.path, {
      checks: undefined,
      model: { outputs, inputs: { input: python.columns } },
      challenger: { inputs: { input: ["known", second, ...others] } },
      input: { columns: { known: `case when id % 49 = 0 then null else ${first} end` } },
    });
    const done = await command("run", spec);
    expect(done).toMatchObject({ status: "complete", rows_scored: 569, rows_rejected: 0, verdict: null });
    const found = done["challenger"] as Found;
    expect(found.rows_missed).toEqual({ missing: 569 - python.missed.rows });
    expectFigures(found, python.missed);
    const { outputs: shown } = await statsOf(spec);
    expect(shown.p.most_different.map(({ keys }) => keys?.id)).toEqual(python.missed.p.most_different);
  });

  test("rows that the champion rejects are not compared, and rows that input.where leaves out do not move the others", async () => {
    const spec = await write(scratch.path, {
      checks: undefined,
      on_bad_row: "reject",
      max_rejects: "50%",
      input: { where: "id % 5 <> 0", columns: { known: `case when id % 7 = 0 then null else ${first} end` } },
      model: { outputs, inputs: { input: ["known", second, ...others] } },
      challenger: { inputs: { input: ["known", second, ...others] } },
    });
    const done = await command("run", spec);
    expect(done["rows_rejected"]).toBeGreaterThan(50);
    const { outputs: shown, rows_compared: rows, rows_missed: missed } = await statsOf(spec);
    expect([rows, missed]).toEqual([done["rows_scored"], {}]);
    // The shift alone makes the difference, which is largest where the champion is undecided.
    const ids = shown.p.most_different.map(({ keys }) => keys?.id ?? "");
    expect(ids.filter((id) => BigInt(id) % 5n === 0n || BigInt(id) % 7n === 0n)).toEqual([]);
    expect(shown.p["largest_difference"]).toBeGreaterThan(0.3);
  });

  test("a challenger, or a key of it, that is not that of the plan ends an unfinished run with 66", async () => {
    const model = join(scratch.path, "challenger.onnx");
    await copyFile(shifted, model);
    const spec = await write(scratch.path, { challenger: { path: model } });
    expect((await runHere(["run", spec, "--worker", "0/2"])).code).toBe(0);
    await copyFile(join(projectFolder, "fixtures/models/cancer-logistic.onnx"), model);
    const changed = await runHere(["run", spec]);
    expect([changed.code, changed.stderr]).toEqual([66, expect.stringContaining("comparing the challenger ")]);
    await copyFile(shifted, model);
    await write(scratch.path, { challenger: { path: model, missing: "nan" } });
    const key = await runHere(["run", spec]);
    expect([key.code, key.stderr]).toEqual([
      66,
      expect.stringContaining('challenger.missing is "nan", planned "bad_row"'),
    ]);
    await write(scratch.path, { challenger: { path: model } });
    expect((await runHere(["run", spec])).code).toBe(0);
  });

  test("a challenger that cannot be loaded or bound ends planning with 64, names the key, and plans nothing", async () => {
    await writeFile(join(scratch.path, "empty.onnx"), "");
    for (const [challenger, found] of [
      [
        { path: "gone.onnx" },
        /challenger\.path: .*gone\.onnx[^]*hint: challenger\.path is relative to the spec's folder/,
      ],
      [{ path: "empty.onnx" }, /empty\.onnx/],
      [
        { inputs: { input: ["no_column"] } },
        /job\.yaml:\d+:\d+: challenger: binding .*: challenger\.inputs\.input names column `no_column`/,
      ],
      [
        { outputs: { p: "nothing[1]" } },
        /job\.yaml:\d+:\d+: challenger: binding .*: challenger\.outputs\.p names `nothing`/,
      ],
      [{ sha256: "0".repeat(64) }, /its sha256 is [\da-f]{64}, but challenger\.sha256 is 0{64}/],
    ] as const) {
      const refused = await runHere(["run", await write(scratch.path, { challenger })]);
      expect([refused.code, refused.stderr]).toEqual([64, expect.stringMatching(found)]);
    }
    expect(await readdir(scratch.path)).not.toContain("out");
  });

  test("a column that neither model finds is named for the job's own model, and the input is asked about", async () => {
    const inputs = { input: ["absent", second, ...others] };
    const spec = await write(scratch.path, { model: { outputs, inputs }, challenger: { inputs } });
    const refused = await runHere(["plan", spec]);
    expect(refused.code).toBe(64);
    expect(refused.stderr).toMatch(
      /^error: binding .*cancer-logistic\.onnx .*: model\.inputs\.input names column `absent`/,
    );
    expect(refused.stderr).toContain(
      "hint: if earlier runs had it, the input is incomplete: write it again; else correct",
    );
    expect(refused.stderr).not.toContain("challenger");
  });
});

const postgres = usePostgres();

postgres.describe("in a database,", () => {
  test("a challenger's agreement is in the verdict, which workers share", async () => {
    await using database = await postgres.server().createDatabase();
    const { model, ...rest } = jobOf();
    const spec = await writePgSpec(scratch.path, fixtureNamed("cancer-logistic"), database, {
      ...rest,
      model: { ...model, outputs: { ...outputs, probabilities: "probabilities" } },
      output: { postgres: { mode: "append" } },
    });
    await command("run", spec, "--worker", "0/2");
    expectFigures((await command("run", spec, "--worker", "1/2"))["challenger"] as Found, python.swapped);
    expectFigures((await command("status", spec))["challenger"] as Found, python.swapped);
  });
});
