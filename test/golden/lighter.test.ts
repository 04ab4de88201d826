import { join } from "node:path";
import { expect, test } from "vitest";
import { projectFolder } from "../support/cli.js";
import { differences } from "../support/golden.js";
import { scratchFolder, writeSpec } from "../support/job.js";
import { outputRows } from "../support/output.js";
import { readRows } from "../support/parquet.js";
import { hasExactInt8 } from "../support/processor.js";
import { scoreHere } from "../support/score.js";
import { faultsOf, textJob } from "../support/text-job.js";
import { fixtureNamed } from "../support/world.js";

const folder = join(projectFolder, "fixtures/lighter");

/** Scores with a lighter model, and compares with what Python predicts. */
async function expectGolden(name: string, original: "diabetes-mlp" | "wine-forest", batch: number): Promise<void> {
  await using scratch = await scratchFolder();
  const spec = await writeSpec(scratch.path, fixtureNamed(original), {
    model: { path: join(folder, `${name}.onnx`) },
    engine: { batch_size: batch },
  });

  await scoreHere(spec);

  const golden = await readRows(join(folder, `${name}.parquet`));
  expect(differences(await outputRows(join(scratch.path, "out")), golden)).toEqual([]);
}

test.each([
  ["mlp-fp16", "diabetes-mlp", 100],
  ["forest-pruned", "wine-forest", 100],
] as const)("the lighter model %s predicts what it does in Python", expectGolden);

test.skipIf(!hasExactInt8).each([
  // Its scales come from the rows of a call.
  ["mlp-int8-dynamic", "diabetes-mlp", 1],
  ["mlp-int8-static", "diabetes-mlp", 100],
] as const)("the lighter model %s predicts what it does in Python, on a processor with VNNI", expectGolden);

test.skipIf(!hasExactInt8)(
  "a transformer whose weights are INT8 gives the embeddings that it gives in Python",
  async () => {
    await using scratch = await scratchFolder();
    const { spec, out } = await textJob(scratch.path, {
      model: { path: join(folder, "encoder-int8.onnx") },
      engine: { batch_size: 1 },
    });

    await scoreHere(spec);

    const golden = join(folder, "encoder-int8.parquet");
    expect(await faultsOf(await outputRows(out), () => true, golden)).toEqual([]);
  },
);
