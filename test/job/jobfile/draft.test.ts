import { expect, test } from "vitest";
import { draftSpec, type SpecDraft } from "#src/cli/commands/init.js";
import { load } from "../../support/spec.js";

const draft: SpecDraft = {
  schema: "./infer-batch.schema.json",
  command: "infer-batch run job.yaml",
  name: "churn",
  inputPath: ["data/*.parquet"],
  model: { path: "churn.onnx", sha256: "d".repeat(64), inputs: { input: ["a", "b"] }, outputs: { score: "score" } },
  types: new Map(),
  columns: ["id"],
  target: { parquet: "out/dt=${ds}" },
  notes: [],
};

test("what a file calls its columns and tensors stays a name, even if YAML or the spec would read it as something else", () => {
  const names = ["${HOME}", "$${x}", "a: b", "- a", "# a", "'a\"", "*a", "&a", "yes", "007", "null", "a\nb", " a "];
  const model = { ...draft.model, inputs: { "in: put # 1": names }, outputs: { score: "${HOME}[0]" } };
  const { inputs, outputs } = load(draftSpec({ ...draft, model, notes: ["a\nb: c", "\u0000"] })).model;
  expect([inputs, outputs]).toEqual([model.inputs, model.outputs]);
});

test("several patterns, folders with params and tables stay what they are", () => {
  const inputPath = ["a b/*.parquet", "dt=${ds}/*.parquet"];
  const postgres = { url: "postgres://db.example/x", table: "predictions.churn" };
  const spec = load(draftSpec({ ...draft, inputPath, target: { postgres } }), { params: { ds: "2026-11-20" } });
  expect(spec.input.path).toEqual(["a b/*.parquet", "dt=2026-11-20/*.parquet"]);
  expect(spec.output.postgres).toMatchObject(postgres);
  expect(load(draftSpec(draft)).output.parquet?.path).toBe("out/dt=2026-11-21");
});
