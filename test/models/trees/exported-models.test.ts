import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { differenceOf } from "#src/models/trees/compare-scores.js";
import { openTreeModel } from "#src/models/trees/tree-model.js";
import { projectFolder } from "../../support/cli.js";
import { openWhole, rowsFor } from "../../support/tree-sessions.js";

const folder = join(projectFolder, "fixtures/trees");
/** The first takes more than one input: test/run/trees.test.ts scores it. */
const others = new Set(["encoded-texts", "isolation-forest-nodes"]);
const names = readdirSync(folder)
  .map((file) => file.replace(/\.onnx$/, ""))
  .filter((name) => !others.has(name));
/** ONNX Runtime goes on with the scores of these: what stands behind the trees divides, takes logarithms, adds up. */
const goesOn = new Set(["isolation-forest", "stacked"]);

describe.each(names)("the exported model %s", (name) => {
  test.each([1, 70, 1500])("is scored as ONNX Runtime scores it, with %i rows at once", async (count) => {
    const model = readFileSync(join(folder, `${name}.onnx`));
    const whole = await openWhole(model);
    const outputs = whole.signature.outputs.flatMap((output) => (output.dtype === undefined ? [] : [output.name]));
    const trees = await openTreeModel({ model, wanted: outputs, openPart: openWhole });
    try {
      const request = { inputs: [rowsFor(model, whole, count)], outputs };
      const expected = await whole.run(request);

      const found = await trees.run(request);

      for (const [index, tensor] of found.entries()) {
        const other = expected[index];
        const bound = goesOn.has(name) ? 1e-6 : trees.bound;
        expect(other && differenceOf(tensor, other, bound), `${name}: ${outputs[index]}`).toBeUndefined();
      }
    } finally {
      await trees.close();
      await whole.close();
    }
  });
});

test("models whose trees give their outputs need no other part", async () => {
  const opened: string[] = [];
  for (const name of ["lightgbm-binary", "boosting-classes", "forest-regression", "catboost-regression"]) {
    const model = readFileSync(join(folder, `${name}.onnx`));
    const outputs = (await openWhole(model)).signature.outputs.map((output) => output.name);
    let parts = 0;
    const openPart: typeof openWhole = async (part) => {
      parts += 1;
      return await openWhole(part);
    };
    const trees = await openTreeModel({ model, wanted: outputs, openPart });
    await trees.close();
    opened.push(`${name}: ${parts}`); // the trees alone, for the check
  }
  expect(opened).toEqual([
    "lightgbm-binary: 1",
    "boosting-classes: 1",
    "forest-regression: 1",
    "catboost-regression: 1",
  ]);
});

const failToOpen = (): never => expect.fail("a part was opened");

test("an isolation forest of more than a few trees is left to ONNX Runtime, and none of its parts is opened", async () => {
  const model = readFileSync(join(folder, "isolation-forest-nodes.onnx"));
  const opened = openTreeModel({ model, wanted: ["label", "scores"], openPart: failToOpen });
  await expect(opened).rejects.toThrow("its 9 trees are in 9 nodes");
});
