import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { projectFolder, runHere } from "../support/cli.js";
import { scratch } from "../support/job.js";
import { outputRows } from "../support/output.js";

async function specFor(folder: string, table: string, model: object): Promise<string> {
  const spec = join(folder, "job.yaml");
  const text = {
    version: 1,
    name: "small",
    input: { path: join(projectFolder, "fixtures/data", table, "*.parquet") },
    model: { ...model, path: join(projectFolder, "fixtures/models", (model as { path: string }).path) },
    output: { columns: ["id"], parquet: { path: "out" } },
  };
  await writeFile(spec, JSON.stringify(text));
  return spec;
}

/** Lines of stderr that warn; a command must end well. */
async function warnings(...args: readonly string[]): Promise<string[]> {
  const { code, stderr } = await runHere(args);
  expect({ code, stderr }).toMatchObject({ code: 0 });
  return stderr.split("\n").filter((line) => /warn/i.test(line));
}

describe("an output that is not a tensor", () => {
  const lost =
    "output `output_probability` of the model is seq(map(int64,tensor(float))), no tensor, and is not written: export the model with zipmap=False (skl2onnx: options={'zipmap': False}), or take the ZipMap out of the file, as docs/models.md shows; or name under model.outputs those that are wanted";

  test("plan, validate and run warn once about an output that is not a tensor", async () => {
    const spec = await specFor(scratch.path, "wine", { path: "wine-zipmap.onnx" });

    expect(await warnings("validate", spec)).toEqual([`warning: ${lost}`]);
    expect(await warnings("plan", spec)).toEqual([`warning: ${lost}`]);
    expect(await warnings("run", spec)).toEqual([expect.stringContaining(lost)]);
    expect(await warnings("run", spec)).toEqual([]); // already complete
    const [row] = await outputRows(join(scratch.path, "out"));
    expect(Object.keys(row ?? {})).toEqual(["id", "output_label"]);
  });

  test("no command warns about an output that is not a tensor when model.outputs names others", async () => {
    const model = { path: "wine-zipmap.onnx", outputs: { label: "output_label" } };
    const spec = await specFor(scratch.path, "wine", model);

    for (const command of ["validate", "plan", "run"]) {
      expect({ command, said: await warnings(command, spec) }).toEqual({ command, said: [] });
    }
  });

  test("inspect and init note an output that is not a tensor", async () => {
    const model = join(projectFolder, "fixtures/models/wine-zipmap.onnx");
    expect((await runHere(["inspect", model])).stdout).toContain(`\nnotes:\n  ${lost}\n`);
    const data = join(projectFolder, "fixtures/data/wine/*.parquet");
    const init = await runHere(["init", join(scratch.path, "a.yaml"), "--model", model, "--input", data]);
    const note =
      "output output_probability is seq(map(int64,tensor(float))), no tensor, and left out: export the model with zipmap=False (skl2onnx: options={'zipmap': False}), or take the ZipMap out of the file, as docs/models.md shows";
    expect(init.stdout).toContain(`note     ${note}\n`);
    expect(await readFile(join(scratch.path, "a.yaml"), "utf8")).toContain(`# Note: ${note}\n`);
  });
});

describe("a model that quantises by all values of a batch", () => {
  const dependence =
    "the model quantises by all values of a batch (DynamicQuantizeLinear): a prediction depends somewhat on the rows that are scored with it, and may differ from run to run; docs/models.md tells what to do";

  test("validate warns about a model that quantises by all values of a batch, and run does not repeat it", async () => {
    const spec = await specFor(scratch.path, "diabetes", { path: "diabetes-mlp-quantised.onnx" });

    expect(await warnings("validate", spec)).toEqual([`warning: ${dependence}`]);
    expect(await warnings("plan", spec)).toEqual([]);
    expect(await warnings("run", spec)).toEqual([]);
  });

  test("inspect notes that a model quantises by all values of a batch", async () => {
    const model = join(projectFolder, "fixtures/models/diabetes-mlp-quantised.onnx");
    expect(JSON.parse((await runHere(["inspect", model, "--json"])).stdout)).toMatchObject({ notes: [dependence] });
  });
});
