import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { encodeTexts, type NamedTensor, type Tensor } from "#src/columns/tensor.js";
import { differenceOf } from "#src/models/trees/compare-scores.js";
import { openTreeModel } from "#src/models/trees/tree-model.js";
import { projectFolder } from "../../support/cli.js";
import { scratch } from "../../support/job.js";
import { pythonTools } from "../../support/python-tools.js";
import { torture } from "../../support/torture.js";
import { openWhole } from "../../support/tree-sessions.js";

const small = join(projectFolder, "fixtures/trees-golden");

/** Written by fixtures/trees_golden.py beside the model, its rows and what Python's ONNX Runtime made of them. */
interface Golden {
  readonly input: string;
  readonly dtype: "float32" | "float64";
  readonly dims: readonly number[];
  readonly outputs: readonly {
    readonly name: string;
    readonly dtype: "float32" | "float64" | "int64" | "string";
    readonly dims: readonly number[];
  }[];
}

const arrays = { float32: Float32Array, float64: Float64Array, int64: BigInt64Array };

function tensorAt(path: string, { dtype, dims }: Golden["outputs"][number] | Golden): Tensor {
  const bytes = readFileSync(path);
  if (dtype === "string") {
    return { dtype, dims, data: encodeTexts(bytes.toString().split("\n")) };
  }
  return {
    dtype,
    dims,
    data: new arrays[dtype](bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length)),
  };
}

async function differencesOf(folder: string, name: string): Promise<string[]> {
  const golden = JSON.parse(readFileSync(join(folder, `${name}.json`), "utf8")) as Golden;
  const model = readFileSync(join(folder, `${name}.onnx`));
  const wanted = golden.outputs.map((output) => output.name);
  const trees = await openTreeModel({ model, wanted, openPart: openWhole });
  try {
    const inputs: NamedTensor[] = [{ ...tensorAt(join(folder, `${name}.rows`), golden), name: golden.input }];
    const found = await trees.run({ inputs, outputs: wanted });
    // ONNX Runtime goes on with the scores of isolation forests: it divides, and takes logarithms.
    const bound = name.startsWith("isolation-forest") ? 1e-6 : trees.bound;
    return golden.outputs.flatMap((output, index) => {
      const difference = differenceOf(
        found[index] as Tensor,
        tensorAt(join(folder, `${name}.${index}`), output),
        bound,
      );
      return difference === undefined ? [] : [`${output.name}: ${difference}`];
    });
  } finally {
    await trees.close();
  }
}

const tiny = readdirSync(small).flatMap((file) => (file.endsWith(".onnx") ? [file.replace(/\.onnx$/, "")] : []));

test.each(tiny)("%s has the outputs of Python's ONNX Runtime", async (name) => {
  expect(await differencesOf(small, name)).toEqual([]);
});

/** Those whose exporters take minutes for 2,000 trees have 40 of 500 leaves. */
const slow = /^(forest|extra|boosting|histogram)/;
const families = tiny.map((name) => name.replace(/\.tiny$/, ""));
const large = families.flatMap((family) =>
  // ONNX Runtime scores larger isolation forests: each of their trees is a node of its own.
  (family === "isolation-forest" ? ["tiny"] : ["tiny", "middle", slow.test(family) ? "large" : "many"]).map(
    (shape) => `${family}.${shape}`,
  ),
);

function findPython(): string {
  const packages = readFileSync(join(projectFolder, "fixtures/requirements.txt"), "utf8").trim().split("\n");
  const given = process.env["PYTHON"];
  return given ?? join(pythonTools("trees", [...packages, "catboost==1.2.10", "xgboost-cpu==3.2.0"]).bin, "python");
}

describe.skipIf(!torture)("100,000 rows, thresholds and their neighbours among them", () => {
  test.each(large)(
    "100,000 rows of %s have the outputs of Python's ONNX Runtime",
    async (name) => {
      const env = { ...process.env, OMP_NUM_THREADS: "1", PYTHONDONTWRITEBYTECODE: "1" };
      execFileSync(findPython(), [join(projectFolder, "fixtures/trees_golden.py"), scratch.path, name], { env });
      expect(await differencesOf(scratch.path, name)).toEqual([]);
    },
    1_200_000,
  );
});
