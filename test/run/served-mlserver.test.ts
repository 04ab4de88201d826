import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { expectEnd, runCli } from "../support/cli.js";
import { expectFinished } from "../support/crash.js";
import { goldenRows } from "../support/golden.js";
import { scratch, writeSpec } from "../support/job.js";
import { mlserver, startMlServer } from "../support/mlserver.js";
import { partNames } from "../support/output.js";
import { onnxModel } from "../support/v2-server.js";
import { torture } from "../support/torture.js";
import { until } from "../support/waiting.js";
import { fixtureNamed } from "../support/world.js";

describe.skipIf(mlserver.missing !== undefined)(`a model of a real MLServer${mlserver.skipped}`, () => {
  const kills = torture ? 3 : 0;

  test(`a model of MLServer, with texts, gives the predictions of ONNX Runtime (server killed ${kills} times)`, async () => {
    const fixture = fixtureNamed("penguins-pipeline");
    await using signature = await onnxModel(fixture.model);
    const folder = join(scratch.path, "server");
    await mkdir(folder);
    await using server = await startMlServer(folder, fixture.model, signature);
    const spec = await writeSpec(scratch.path, fixture, {
      commit_rows: 20,
      engine: { batch_size: 2 },
      model: { path: undefined, server: { protocol: "v2", url: server.url, name: "m", concurrency: 2 } },
    });
    const out = join(scratch.path, "out");
    const running = runCli(["run", spec, "--no-progress"]);
    for (let kill = 1; kill <= kills; kill += 1) {
      await until(async () => (await partNames(out).catch(() => [])).length >= 2 * kill);
      await server.stop();
      server.start();
    }

    const ended = await expectEnd(running, 0);
    expect(ended.stderr.includes("trying again")).toBe(kills > 0);
    await expectFinished(out, { golden: await goldenRows(fixture) });
    const finished = await runCli(["plan", spec]);
    expect(finished.stdout, finished.stderr).toContain("v2:m → version 3");
  }, 120_000);
});
