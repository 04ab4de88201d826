import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { expectEnd, runCli } from "../support/cli.js";
import { expectFinished } from "../support/crash.js";
import { differences, goldenRows } from "../support/golden.js";
import { fixtures, scratch, writeSpec } from "../support/job.js";
import { faultsAtAnyMoment, outputRows, partNames } from "../support/output.js";
import { fixtureNamed } from "../support/world.js";

/** An execution provider of this machine, such as cuda: bench/gpu sets it. CI has SwiftShader in webgpu.test.ts. */
const provider = process.env["INFER_BATCH_GPU"] ?? "";

describe.skipIf(provider === "")(
  `a GPU of this machine${provider === "" ? " (skipped: INFER_BATCH_GPU names no provider)" : `, by ${provider}`}`,
  () => {
    test.each(fixtures)(
      "a GPU of this machine gives the predictions of Python on a CPU for $name",
      { timeout: 300_000 },
      async (fixture) => {
        const spec = await writeSpec(scratch.path, fixture, { engine: { providers: [provider] } });
        await expectEnd(runCli(["run", spec]), 0);
        expect(differences(await outputRows(join(scratch.path, "out")), await goldenRows(fixture))).toEqual([]);
      },
    );

    test("a run that is killed on a GPU five times is resumed on it, each row once", { timeout: 300_000 }, async () => {
      const fixture = fixtureNamed("diabetes-mlp");
      const overrides = { commit_rows: 16, engine: { providers: [provider], batch_size: 4 } };
      const spec = await writeSpec(scratch.path, fixture, overrides);
      const golden = await goldenRows(fixture);
      const out = join(scratch.path, "out");
      for (let kill = 0; kill < 5; kill += 1) {
        const before = (await partNames(out)).length;
        const { signal, stderr } = await runCli(["run", spec], {
          onStart: (child) => {
            const watch = async (): Promise<void> => {
              while ((await partNames(out)).length === before) {
                await sleep(1);
              }
              child.kill("SIGKILL");
            };
            void watch();
          },
        });
        expect(signal, stderr).toBe("SIGKILL");
        expect(await faultsAtAnyMoment(out, { golden, commitRows: 16 })).toEqual([]);
      }
      const { stdout } = await expectEnd(runCli(["run", spec, "--json"]), 0);
      expect(JSON.parse(stdout.trim().split("\n").at(-1) ?? "")).toMatchObject({ status: "complete", provider });
      await expectFinished(out, { golden });
    });
  },
);
