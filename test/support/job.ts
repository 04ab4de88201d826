import { mkdtempSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onTestFinished, TestRunner } from "vitest";
import { projectFolder } from "./cli.js";

const scratchPrefix = join(tmpdir(), "infer-batch-test-");
const foldersOfTests = new WeakMap<object, string>();

/** The folder of the test that is running: made when the test first asks for it, gone when the test is over. */
export const scratch = {
  get path(): string {
    const test = TestRunner.getCurrentTest();
    if (test === undefined || test.concurrent === true) {
      throw new Error("no test runs, or several at once: make a folder with scratchFolder()");
    }
    let path = foldersOfTests.get(test);
    if (path === undefined) {
      path = mkdtempSync(scratchPrefix);
      foldersOfTests.set(test, path);
      onTestFinished(() => rm(path as string, { recursive: true, force: true }));
    }
    return path;
  },
};

/** Another folder, or one beside tests that run at once: gone when it is disposed. */
export async function scratchFolder(): Promise<{ path: string } & AsyncDisposable> {
  const path = await mkdtemp(scratchPrefix);
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) };
}

/** A table of fixtures/ with its model, its outputs as the golden file names them, and its rows. */
export interface Fixture {
  readonly name: string;
  readonly table: string;
  readonly model: string;
  readonly outputs: Readonly<Record<string, string>>;
  readonly rows: number;
  /** What names a row; default `id`. */
  readonly key?: string;
  /** More of the spec's `model`. */
  readonly binding?: object;
}

const classes = (count: number, prefix: string): Record<string, string> =>
  Object.fromEntries(Array.from({ length: count }, (_, index) => [`${prefix}_${index}`, `${prefix}[${index}]`]));

export const fixtures: readonly Fixture[] = [
  {
    name: "cancer-logistic",
    table: "cancer",
    model: "cancer-logistic.onnx",
    outputs: { label: "label", ...classes(2, "probabilities") },
    rows: 569,
  },
  {
    name: "digits-lightgbm",
    table: "digits",
    model: "digits-lightgbm.onnx",
    outputs: { label: "label", ...classes(10, "probabilities") },
    rows: 1797,
  },
  {
    name: "wine-forest",
    table: "wine",
    model: "wine-forest.onnx",
    outputs: { label: "label", ...classes(3, "probabilities") },
    rows: 178,
  },
  { name: "diabetes-mlp", table: "diabetes", model: "diabetes-mlp.onnx", outputs: { score: "score" }, rows: 442 },
  {
    name: "diabetes-mlp-batch32",
    table: "diabetes",
    model: "diabetes-mlp-batch32.onnx",
    outputs: { score: "score" },
    rows: 442,
  },
  {
    name: "external-data",
    table: "diabetes",
    model: "external-data/model.onnx",
    outputs: { score: "score" },
    rows: 442,
  },
  // Two string inputs, an integer and four floats, one column each, by name.
  {
    name: "penguins-pipeline",
    table: "penguins_complete",
    model: "penguins-pipeline.onnx",
    outputs: { label: "label", ...classes(3, "probabilities") },
    rows: 333,
    key: "row_id",
  },
  // NULLs among its features.
  {
    name: "penguins-lightgbm",
    table: "penguins",
    model: "penguins-lightgbm.onnx",
    outputs: { label: "label", ...classes(3, "probabilities") },
    rows: 344,
    key: "row_id",
    binding: {
      inputs: { input: ["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"] },
      missing: "nan",
    },
  },
  // A list column and a scalar one.
  {
    name: "embedding-mlp",
    table: "embeddings",
    model: "embedding-mlp.onnx",
    outputs: { ...classes(8, "vector"), score: "score" },
    rows: 1797,
  },
  // Lists of any length, and their mask.
  {
    name: "sentences-mean",
    table: "sentences",
    model: "sentences-mean.onnx",
    outputs: { label: "label", ...classes(6, "probabilities") },
    rows: 330,
    binding: {
      inputs: {
        attention_mask: { mask_of: "input_ids" },
        input_ids: { column: "input_ids", pad: { to: 48 } },
        token_type_ids: { column: "token_type_ids", pad: { to: 48 } },
      },
    },
  },
];

export interface SpecOverrides {
  readonly input?: object;
  readonly model?: object;
  readonly engine?: object;
  readonly output?: object;
  readonly [key: string]: unknown;
}

/** Writes a spec for a fixture into `folder` and returns its path; its output is `<folder>/out`. YAML is a superset of JSON. */
export async function writeSpec(folder: string, fixture: Fixture, overrides: SpecOverrides = {}): Promise<string> {
  const { input, model, engine, output, ...rest } = overrides;
  const spec = {
    version: 1,
    name: fixture.name,
    input: { path: join(projectFolder, "fixtures/data", fixture.table, "*.parquet"), ...input },
    model: {
      path: join(projectFolder, "fixtures/models", fixture.model),
      outputs: fixture.outputs,
      ...fixture.binding,
      ...model,
    },
    engine: { threads: 1, ...engine },
    output: { columns: [fixture.key ?? "id"], parquet: { path: "out" }, ...output },
    ...rest,
  };
  const path = join(folder, "job.yaml");
  await writeFile(path, JSON.stringify(spec, undefined, 2));
  return path;
}
