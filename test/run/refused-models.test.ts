import { access } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { scratch, scratchFolder } from "../support/job.js";
import type { GraphNode, SmallModel } from "../support/onnx.js";
import { smallJob } from "../support/faulty.js";
import { shownCli } from "../support/shown.js";

const two = { name: "x", dtype: "float32", shape: ["N", 2] } as const;

function model(
  attributes: GraphNode["attributes"],
  shape: readonly (number | string)[],
  rows: number | "N" = "N",
): SmallModel {
  return {
    inputs: [{ ...two, shape: [rows, 2] }],
    outputs: [{ name: "score", dtype: "float32", shape }],
    nodes: [{ op: "ReduceMean", from: ["x"], to: "score", attributes: attributes ?? {} }],
  };
}

/** A spec whose rows are `rows`, and what a command says of it. */
async function said(command: string, small: SmallModel, rows = 10): Promise<{ text: string; wroteOutput: boolean }> {
  await using folder = await scratchFolder();
  const job = await smallJob(folder.path, {
    model: small,
    select: `SELECT i::BIGINT AS id, i::FLOAT AS a, i::FLOAT AS b FROM range(${rows}) t(i)`,
    modelSpec: { inputs: { x: ["a", "b"] } },
  });
  const text = await shownCli([command, job.spec], folder.path);
  const wroteOutput = await access(join(folder.path, "out")).then(
    () => true,
    () => false,
  );
  return { text, wroteOutput };
}

describe("a model that mixes the rows of a batch is refused before a plan is written", () => {
  test.each([
    {
      what: "to one value",
      small: model({ keepdims: 0 }, []),
      found: "is float32 []; [N], [N,1] and [N,K] are supported",
    },
    { what: "to one value, batch fixed", small: model({ keepdims: 0 }, [], 4), found: "is float32 []; " },
    { what: "to one row", small: model({ keepdims: 1 }, [1, 1]), found: "came as float32 [1,1] for a batch of 7 rows" },
    { what: "to a row of means", small: model({ axes: [0] }, [1, 2]), found: "came as float32 [1,2] for a batch of 7" },
    {
      what: "and says otherwise",
      small: model({ axes: [0] }, ["N", 2]),
      found: "came as float32 [1,2] for a batch of 7",
    },
    {
      what: "without their dimension",
      small: model({ axes: [0], keepdims: 0 }, [2]),
      found: "came as float32 [2] for",
    },
    { what: "batch fixed", small: model({ axes: [0] }, [1, 2], 4), found: "came as float32 [1,2] for a batch of 4" },
  ])("$what", async ({ small, found }) => {
    for (const command of ["validate", "run"]) {
      const { text, wroteOutput } = await said(command, small);

      expect({ command, text }).toMatchObject({ command, text: expect.stringMatching(/^exit 64\n/) as string });
      expect(text).toContain(`output \`score\` ${found}`);
      expect(text).toContain("the model mixes the rows of a batch");
      expect(text).toContain("export the model so that the first dimension of each output is the batch's");
      expect(wroteOutput).toBe(false);
    }
  });

  test("a model that mixes the rows of a batch is refused before a plan is written if the model returns as many means as there are rows, which look like predictions", async () => {
    const { text } = await said("run", model({ axes: [0], keepdims: 0 }, ["N"]), 2);

    expect(text).toMatch(/^exit 64\n/);
  });

  test("a model that mixes the values of one row is not refused", async () => {
    const { text } = await said("run", model({ axes: [1] }, ["N", 1]));

    expect(text).toMatch(/^exit 0\n/);
  });
});

test("the message about a model of a later opset names its opset and the latest supported one, without C++ types", async () => {
  const { text } = await said("validate", { ...model({ axes: [1] }, ["N", 1]), opset: 99 });

  expect(text).toMatch(
    /^exit 64\n--- stderr\nerror: loading model <folder>\/model\.onnx: it needs opset 99 of ai\.onnx; this ONNX Runtime has opsets up to \d\d\n {2}hint: export it with opset \d\d or lower .*\n$/,
  );
});

test("the hint for a missing provider lists this provider and cpu", async () => {
  const job = await smallJob(scratch.path, {
    model: model({ axes: [1] }, ["N", 1]),
    select: "SELECT 1::BIGINT AS id, 1::FLOAT AS a, 2::FLOAT AS b",
    modelSpec: { inputs: { x: ["a", "b"] } },
    engine: { providers: ["tensorrt"] },
  });

  for (const command of ["run", "doctor"]) {
    expect(await shownCli([command, job.spec], scratch.path)).toContain("list cpu last: providers: [tensorrt, cpu]\n");
  }
});
