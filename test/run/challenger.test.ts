import { copyFile, readdir, readFile, rm, writeFile } from "node:fs/promises";
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
import { type CliResult, expectEnd, projectFolder, runHere } from "../support/cli.js";
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

async function resultIn(folder: string): Promise<string> {
  const names = await readdir(join(folder, "out"), { recursive: true });
  const name = names.find((path) => path.endsWith("comparison.json")) ?? "";
  return await readFile(join(folder, "out", name), "utf8");
}

const command = async (...args: string[]): Promise<Record<string, unknown>> => {
  const done = await expectEnd(runHere([...args, "--json"]), 0);
  return lastJson(done);
};

const statsOf = async (spec: string): Promise<Found> => (await command("stats", spec))["challenger"] as Found;

describe("a run with a challenger", () => {
  test("plan and validate name the challenger, what is compared of it, and where its predictions will be", async () => {
    const spec = await write(scratch.path, { model: { outputs: { ...outputs, other: "probabilities[0]" } } });
    const text = `challenger ${shifted}, sha256 SHA
           compared: label, p, probabilities
           not compared: other, only the champion has it (float32)
           its predictions are written to out/_challenger
`;
    for (const name of ["plan", "validate"]) {
      const { stdout } = await runHere([name, spec]);
      expect(stdout.replaceAll(/sha256 [\da-f]{12}…/g, "sha256 SHA")).toContain(text);
    }
    expect((await command("plan", spec))["challenger"]).toMatchObject({
      uri: shifted,
      compared: ["label", "p", "probabilities"],
      not_compared: { other: "only the champion has it (float32)" },
      place: "out/_challenger",
    });
    const promoted = await write(scratch.path, {
      challenger: { path: join(projectFolder, "fixtures/models/cancer-logistic.onnx"), inputs: undefined },
    });
    expect((await runHere(["plan", promoted])).stderr).toContain("the challenger is the model itself");
    const other = await write(scratch.path, { challenger: { missing: "nan" } });
    expect((await runHere(["plan", other])).stdout).toContain(
      "           missing or cast differ: rows that only one of both models scores are not compared\n",
    );
  });

  test("the agreement in the report, status and stats is that of numpy and scipy, and only stats has keys", async () => {
    const spec = await write(scratch.path, { report: { html: "page.html" } });
    const done = await expectEnd(runHere(["run", spec, "--json"]), 0);
    expectFigures(lastJson(done)["challenger"] as Found, python.swapped);
    expectFigures((await command("status", spec))["challenger"] as Found, python.swapped);
    const stats = await statsOf(spec);
    expectFigures(stats, python.swapped);
    const ids = stats.outputs.p.most_different.map(({ keys }) => keys?.id);
    expect(ids).toEqual(python.swapped.p.most_different);
    const [id = ""] = ids;
    expect(`${done.stdout}${done.stderr}`).not.toContain(id);
    expect(done.stderr).toMatch(/challenger .*shifted\.onnx: 569 rows compared\n.*label: 97\.72% of the rows equal/);
    expect(await resultIn(scratch.path)).toContain(id);
    expect(await readFile(join(scratch.path, "page.html"), "utf8")).toContain(`<tr><th>${id}</th>`);
    const names = await readdir(join(scratch.path, "out"), { recursive: true });
    expect(names.filter((name) => name.endsWith(".parquet"))).toHaveLength(6); // and no other predictions
    const history = await command("history", spec);
    expect(history).toMatchObject({ runs: [{ status: "published" }] });
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
    expect(found.rows_missed).toEqual({ null: 569 - python.missed.rows });
    expectFigures(found, python.missed);
    const { outputs: shown } = await statsOf(spec);
    expect(shown.p.most_different.map(({ keys }) => keys?.id)).toEqual(python.missed.p.most_different);
  });

  test("rows that the champion rejects are not compared, and rows that input.where leaves out do not move the others", async () => {
    const spec = await write(scratch.path, {
      checks: undefined,
      on_bad_row: "reject",
      max_rejects: "50%",
      input: {
        where: "id % 5 <> 0",
        columns: { known: `case when id % 7 = 0 then null else ${first} end`, span: "id", place: "id" },
      },
      output: { columns: ["id", "span", "place"] },
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

  test("a challenger that changes while its run is under way, or afterwards, scores all rows anew; one that is gone leaves the run without a comparison", async () => {
    const model = join(scratch.path, "challenger.onnx");
    await copyFile(shifted, model);
    const spec = await write(scratch.path, { challenger: { path: model, inputs: undefined } });
    await expectEnd(runHere(["run", spec, "--worker", "0/2"]), 0);
    await rm(model);
    const gone = await expectEnd(runHere(["run", spec, "--json"]), 0, /challenger: not whole.*no such file/);
    expect(lastJson(gone)).toMatchObject({ status: "complete", rows_scored: 269 });
    expect(lastJson(gone)).not.toHaveProperty("challenger");
    expect(await command("stats", spec)).not.toHaveProperty("challenger");
    // Half of the rows have been scored with the other one.
    await copyFile(join(projectFolder, "fixtures/models/cancer-logistic.onnx"), model);
    const changed = (await command("run", spec, "--new-run"))["challenger"];
    expect(changed).toMatchObject({ rows_compared: 569, outputs: { p: { largest_difference: 0 } } });
    await copyFile(shifted, model);
    await expectEnd(runHere(["run", spec, "--new-run"]), 0);
    // Another model in place of the one of a run that is over is compared, too.
    await copyFile(join(projectFolder, "fixtures/models/cancer-logistic.onnx"), model);
    const again = await command("run", spec, "--new-run");
    const same = { rows_compared: 569, outputs: { p: { largest_difference: 0 } } };
    expect(again["challenger"]).toMatchObject(same);

    const plans = join(scratch.path, "out/_challenger/_infer-batch");
    const [last = ""] = (await readdir(plans))
      .filter((name) => name.includes(".challenger-"))
      .toSorted()
      .slice(-1);
    expect(await readFile(join(plans, last, "plan.json"), "utf8")).toContain(last);
    await writeFile(join(plans, last, "plan.json"), "{");
    expect((await command("run", spec, "--new-run"))["challenger"]).toMatchObject(same);
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
      await expectEnd(runHere(["run", await write(scratch.path, { challenger })]), 64, found);
    }
    expect(await readdir(scratch.path)).not.toContain("out");
  });

  test("a column that neither model finds is named for the job's own model, and the input is asked about", async () => {
    const inputs = { input: ["absent", second, ...others] };
    const spec = await write(scratch.path, { model: { outputs, inputs }, challenger: { inputs } });
    const refused = await expectEnd(
      runHere(["plan", spec]),
      64,
      /^error: binding .*cancer-logistic\.onnx .*: model\.inputs\.input names column `absent`/,
      "hint: if earlier runs had it, the input is incomplete: write it again; else correct",
    );
    expect(refused.stderr).not.toContain("challenger");
  });
});

const postgres = usePostgres();

postgres.describe("in a database,", () => {
  test("workers share a run and its challenger's, and the last one compares both by key", async () => {
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
    const rows = await database.query("SELECT count(*)::int AS rows FROM scores.predictions_challenger");
    expect(rows).toEqual([{ rows: 569 }]);
  });

  test("a challenger in a table of many runs needs rows that can be told from those of others", async () => {
    await using database = await postgres.server().createDatabase();
    const { model: _model, checks: _checks, ...rest } = jobOf();
    const spec = await writePgSpec(scratch.path, fixtureNamed("cancer-logistic"), database, {
      ...rest,
      output: { postgres: { mode: "append" } },
    });
    await expectEnd(runHere(["validate", spec]), 64, "set output.lineage to true");
  });

  test("a challenger needs a table whose name leaves room for that of its own", async () => {
    await using database = await postgres.server().createDatabase();
    const validate = async (letters: number): Promise<CliResult> => {
      const table = `scores.${"t".repeat(letters)}`;
      const output = { postgres: { mode: "replace", table } };
      const spec = await writePgSpec(scratch.path, fixtureNamed("cancer-logistic"), database, { ...jobOf(), output });
      return await runHere(["validate", spec]);
    };
    await expectEnd(validate(52), 0);
    await expectEnd(validate(53), 64, "longer than 52 letters");
  });
});
