import { copyFile, mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { withFloat } from "../support/challenger.js";
import { projectFolder, runHere } from "../support/cli.js";
import { scratch, scratchFolder, type SpecOverrides, writeSpec } from "../support/job.js";
import { fixtureNamed } from "../support/world.js";

const modelOf = (name: string): string => join(projectFolder, "fixtures/models", name);
const quantised = modelOf("diabetes-mlp-quantised.onnx");

interface Numbers {
  readonly mean_difference: number;
  readonly largest_difference: number;
  readonly rank_correlation: number;
  readonly rows_beyond_tolerance: number;
  readonly most_different: readonly { readonly columns: Readonly<Record<string, string>> }[];
}

interface Compared {
  readonly rows_read: number;
  readonly rows_compared: number;
  readonly a: { readonly size_bytes: number; readonly rows_per_second: number };
  readonly b: { readonly size_bytes: number; readonly rows_per_second: number };
  readonly outputs: Readonly<Record<string, unknown>>;
  readonly not_compared: Readonly<Record<string, string>>;
}

interface Asked {
  readonly fixture: string;
  readonly overrides?: SpecOverrides;
  readonly args: readonly string[];
}

/** Runs `compare --json` over a fixture's job, and checks that it writes nothing. */
async function compareJson({ fixture, overrides = {}, args }: Asked): Promise<Compared & { readonly stderr: string }> {
  await using folder = await scratchFolder();
  const spec = await writeSpec(folder.path, fixtureNamed(fixture), { output: { columns: ["id"] }, ...overrides });
  const before = await readdir(folder.path);
  const { code, stdout, stderr } = await runHere(["compare", spec, "--json", ...args]);
  expect([code, stdout.trim().split("\n").length]).toEqual([0, 1]);
  expect(await readdir(folder.path)).toEqual(before);
  return { ...(JSON.parse(stdout) as Compared), stderr };
}

const idsOf = ({ most_different: most }: Numbers): number[] => most.map(({ columns }) => Number(columns["id"]));

/** What Python says of the differences of all rows, and of the rows that are left when some are filtered out. */
interface Expected {
  readonly mean: number;
  readonly largest: number;
  readonly correlation: number;
  readonly beyond: number;
  readonly ids: readonly number[];
  readonly some: Pick<Expected, "mean" | "beyond" | "ids">;
}

/** On a processor without instructions for products of 8-bit integers (VNNI), sums of such products are cut off. */
const processors: readonly Expected[] = [
  {
    mean: 0.399_313_387,
    largest: 1.367_706_299,
    correlation: 0.999_953_202,
    beyond: 5,
    ids: [108, 306, 273, 105, 431, 262, 251, 294, 307, 49],
    some: { mean: 0.399_239_042, beyond: 10, ids: [249, 251, 180, 320, 125, 186, 378, 92, 203, 123] },
  },
  {
    mean: 0.515_393_279,
    largest: 8.552_246_094,
    correlation: 0.999_939_444,
    beyond: 19,
    ids: [322, 114, 367, 321, 262, 332, 405, 145, 138, 251],
    some: { mean: 0.534_954_527, beyond: 20, ids: [114, 321, 332, 251, 405, 23, 254, 138, 215, 249] },
  },
];

/** The figures of the kind of processor on which a comparison was made; it must be one of the two. */
function expectedOf({ mean_difference: mean }: Numbers, of: (one: Expected) => number): Expected {
  return processors.find((one) => Math.abs(of(one) - mean) < 1e-4) ?? expect.fail(`the mean difference is ${mean}`);
}

/*
 * Expected figures come from Python: the shards read by pyarrow and concatenated, both models scored by onnxruntime 1.32
 * in one batch of all rows (dynamic quantisation depends on the batch), d = numpy.abs(a - b) in float64, and
 * scipy.stats.spearmanr(a, b). The rows are in the order of numpy.lexsort((numpy.arange(len(d)), -d)).
 */
describe("infer-batch compare", () => {
  test("compare of a model and its quantised form agrees with figures of Python's onnxruntime", async () => {
    const found = await compareJson({ fixture: "diabetes-mlp", args: ["--model", quantised, "--tolerance", "1.2"] });
    expect(found).toMatchObject({ rows_read: 442, rows_compared: 442, not_compared: {} });
    expect([found.a.size_bytes, found.b.size_bytes]).toEqual([4047, 3492]);
    expect(Math.min(found.a.rows_per_second, found.b.rows_per_second)).toBeGreaterThan(0);
    const score = found.outputs["score"] as Numbers;
    const expected = expectedOf(score, ({ mean }) => mean);
    expect(score.largest_difference).toBeCloseTo(expected.largest, 4);
    expect(score.rank_correlation).toBeCloseTo(expected.correlation, 6);
    expect(score.rows_beyond_tolerance).toBe(expected.beyond);
    expect(idsOf(score)).toEqual(expected.ids);
  });

  test("compare names the right rows when some are filtered out and others cannot be scored", async () => {
    const names = ["age", "sex", "bmi_known", "bp", "s1", "s2", "s3", "s4", "s5", "s6"];
    const input = {
      path: join(projectFolder, "fixtures/data/diabetes/*.parquet"),
      where: "id % 3 <> 1",
      columns: { bmi_known: "case when id in (6, 108) then null else bmi end" },
    };
    const model = { inputs: { features: names } };
    const args = ["--model", quantised, "--tolerance", "1"];
    const found = await compareJson({ fixture: "diabetes-mlp", overrides: { input, model }, args });
    expect(found.rows_compared).toBe(293);
    const score = found.outputs["score"] as Numbers;
    const { some } = expectedOf(score, (one) => one.some.mean);
    expect(score.rows_beyond_tolerance).toBe(some.beyond);
    expect(idsOf(score)).toEqual(some.ids);
  });

  test("compare has the same result if the models are scored one after the other, as on a GPU", async () => {
    const overrides = { engine: { providers: ["cuda", "cpu"] } };
    const args = ["--model", modelOf("diabetes-mlp.onnx"), "--model", quantised, "--tolerance", "1.2"];
    const found = await compareJson({ fixture: "diabetes-mlp", overrides, args });
    const score = found.outputs["score"] as Numbers;
    expect(score.rows_beyond_tolerance).toBe(expectedOf(score, ({ mean }) => mean).beyond);
  });

  test("compare counts the labels that flip between two classifiers, and the cosines of their probabilities", async () => {
    // The logistic regression, 3 less and more in its two intercepts.
    const bytes = await readFile(modelOf("cancer-logistic.onnx"));
    const intercept = 0.220_886_260_271_072_4;
    const other = join(scratch.path, "shifted.onnx");
    await writeFile(other, withFloat(withFloat(bytes, -intercept, -intercept - 3), intercept, intercept + 3));
    // More rows than one turn, so that each model begins one.
    const copies = 30;
    await mkdir(join(scratch.path, "in"));
    const shards = join(projectFolder, "fixtures/data/cancer");
    for (const name of await readdir(shards)) {
      for (let copy = 0; copy < copies; copy += 1) {
        await copyFile(join(shards, name), join(scratch.path, "in", `${String(copy).padStart(2, "0")}-${name}`));
      }
    }
    const spec = await writeSpec(scratch.path, fixtureNamed("cancer-logistic"), {
      input: { path: "in/*.parquet" },
      model: { outputs: { label: "label", probabilities: "probabilities" } },
      output: { columns: ["id"] },
    });
    const { code, stdout } = await runHere(["compare", spec, "--model", other]);
    expect(code).toBe(0);
    const shown = stdout.slice(stdout.indexOf("labels\n")).split("\n");
    // Python: (la == lb).sum() of 569 is 541, collections.Counter(zip(la, lb)), and the mean and minimum of the cosines.
    expect(shown.slice(0, 9)).toEqual([
      "labels",
      expect.stringMatching(/^ {2}column +rows equal +PSI$/),
      expect.stringMatching(/^ {2}label {7}95\.08% {2}0\.\d+$/),
      "vectors",
      expect.stringMatching(/^ {2}column +rows equal +lowest cosine +mean cosine +rows without cosine$/),
      expect.stringMatching(/^ {2}probabilities +[\d.]+% +0\.4251\d* +0\.97024\d* +0%$/),
      "labels that differ",
      "  column  A  B  rows",
      `  label   0  1   ${28 * copies}`,
    ]);
    expect(shown.slice(9, 12)).toEqual([
      "rows that differ in label",
      "  id                A  B",
      "  9007199254741013  0  1",
    ]);
  });

  test("compare reports the outputs that only one model has, and ends with 0", async () => {
    const args = ["--model", modelOf("wine-zipmap.onnx")];
    const overrides = { model: { path: modelOf("wine-forest.onnx"), outputs: undefined } };
    const found = await compareJson({ fixture: "wine-forest", overrides, args });
    expect(found.rows_compared).toBe(178);
    expect(found.outputs).toEqual({});
    expect(found.not_compared).toEqual({
      label: "only A has it (int64)",
      probabilities: "only A has it (list<float32>)",
      output_label: "only B has it (int64)",
    });
  });

  test("compare of a model with other inputs says where a model has bindings of its own, and does not send people to the spec's", async () => {
    const overrides = { output: { columns: ["row_id"] }, model: { path: modelOf("penguins-pipeline.onnx") } };
    const spec = await writeSpec(scratch.path, fixtureNamed("penguins-pipeline"), overrides);
    const other = await runHere(["compare", spec, "--model", modelOf("penguins-lightgbm.onnx")]);
    expect(other.code).toBe(64);
    expect(other.stderr).toMatch(/^error: binding \S+penguins-lightgbm.onnx to the columns of /);
    expect(other.stderr.slice(other.stderr.indexOf("  hint:"))).toMatchInlineSnapshot(`
      "  hint: compare binds each model by model.inputs and model.outputs of the spec; for a model with other inputs or outputs: name it under challenger, with inputs and outputs of its own, and each run compares the two
      "
    `);
    await writeSpec(scratch.path, fixtureNamed("penguins-pipeline"), {
      ...overrides,
      model: { path: modelOf("penguins-lightgbm.onnx") },
    });
    const own = await runHere(["compare", spec, "--model", modelOf("penguins-pipeline.onnx")]);
    expect([own.code, own.stderr]).toEqual([64, expect.stringContaining("model.inputs.input, or put ids and labels")]);
  });

  test("compare with --limit scores only the first rows, and says so", async () => {
    const spec = await writeSpec(scratch.path, fixtureNamed("diabetes-mlp"), { output: { columns: ["id"] } });
    const { stdout } = await runHere(["compare", spec, "--model", quantised, "--limit", "260"]);
    expect(stdout).toContain("260 rows compared, from the first 260 rows of 442\n");
  });

  test("compare leaves columns out of its tables where the terminal is too narrow for them, and names them", async () => {
    const spec = await writeSpec(scratch.path, fixtureNamed("diabetes-mlp"), { output: { columns: ["id"] } });
    const { stdout } = await runHere(["compare", spec, "--model", quantised], { columns: 60 });
    const tables = stdout.slice(stdout.indexOf("speed of")).split("\n"); // models are named above, in lines of their own
    expect(Math.max(...tables.map((line) => line.length))).toBeLessThanOrEqual(60);
    expect(stdout).toMatch(/no room in 60 characters for: PSI/);
  });

  test("compare refuses a third model, a URI without a model and a limit of no rows with 64", async () => {
    const spec = await writeSpec(scratch.path, fixtureNamed("diabetes-mlp"));
    const refused = async (...args: string[]): Promise<string> => {
      const { code, stderr } = await runHere(["compare", spec, ...args]);
      return `${code} ${stderr.split("\n")[0]}`;
    };
    expect(await refused("--model", quantised, "--model", quantised, "--model", quantised)).toBe(
      "64 error: comparing models: 3 are given, and two can be compared",
    );
    expect(await refused("--model", "models:/churn")).toMatch(/^64 error: reading --model models:\/churn: /);
    expect(await refused("--model", quantised, "--limit", "0")).toMatch(/^64 .*expected a number from 1/);
    expect(await refused("--model", quantised, "--tolerance", "-1")).toMatch(/^64 .*expected a number from 0/);
    expect(await refused()).toMatch(/^64 .*required option '--model <uri>'/);
  });
});

test("compare takes two given models for a job whose model a server has, and refuses to compare the served model with one", async () => {
  const server = { protocol: "v2", url: "http://127.0.0.1:1", name: "m" };
  const spec = await writeSpec(scratch.path, fixtureNamed("diabetes-mlp"), { model: { path: undefined, server } });
  const models = ["--model", modelOf("diabetes-mlp.onnx"), "--model", quantised];

  const both = await runHere(["compare", spec, "--json", ...models]);
  const one = await runHere(["compare", spec, ...models.slice(2)]);

  expect(both.code, both.stderr).toBe(0);
  expect(JSON.parse(both.stdout)).toMatchObject({ rows_compared: 442 });
  expect([one.code, one.stderr]).toEqual([64, expect.stringContaining("name two models with --model")]);
});
