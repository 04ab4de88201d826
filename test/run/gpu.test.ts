import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { runCli } from "../support/cli.js";
import { differences, goldenRows } from "../support/golden.js";
import { fixtures, scratchFolder, writeSpec } from "../support/job.js";
import { outputRows } from "../support/output.js";

/** An execution provider of this machine, such as cuda: bench/gpu sets it. CI has SwiftShader in webgpu.test.ts. */
const provider = process.env["INFER_BATCH_GPU"] ?? "";

describe.skipIf(provider === "")(
  `a GPU of this machine${provider === "" ? " (skipped: INFER_BATCH_GPU names no provider)" : `, by ${provider}`}`,
  () => {
    test.each(fixtures)(
      "a GPU of this machine gives the predictions of Python on a CPU for $name",
      { timeout: 300_000 },
      async (fixture) => {
        await using scratch = await scratchFolder();
        const spec = await writeSpec(scratch.path, fixture, { engine: { providers: [provider] } });
        const { code, stderr } = await runCli(["run", spec]);
        expect(code, stderr).toBe(0);
        expect(differences(await outputRows(join(scratch.path, "out")), await goldenRows(fixture))).toEqual([]);
      },
    );
  },
);
