import { readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { type CliResult, expectEnd, runHere } from "../support/cli.js";
import { expectFinished } from "../support/crash.js";
import { goldenRows } from "../support/golden.js";
import { scratch, writeSpec } from "../support/job.js";
import { missingMlflow, skippedMlflow, startMlflow } from "../support/mlflow-server.js";
import { outputRows } from "../support/output.js";
import { runWatched } from "../support/watched.js";
import { fixtureNamed } from "../support/world.js";

const fixture = fixtureNamed("diabetes-mlp");

test.skipIf(missingMlflow !== undefined)(
  `a run keeps the version of an MLflow alias that it was planned with: after a kill, when the alias moves, and without the server${skippedMlflow}`,
  async () => {
    await using server = await startMlflow(scratch.path);
    const cache = join(scratch.path, "cache");
    const env = { XDG_CACHE_HOME: cache, MLFLOW_TRACKING_URI: undefined };
    const spec = await writeSpec(scratch.path, fixture, {
      commit_rows: 80,
      model: { path: "models:/churn@champion", registry: { url: server.url } },
    });
    const run = async (...args: string[]): Promise<CliResult> => {
      const ran = await expectEnd(runHere(args, { env }), 0);
      return ran;
    };
    const out = join(scratch.path, "out");
    const manifest = async (): Promise<unknown> => JSON.parse(await readFile(join(out, "_manifest.json"), "utf8"));

    const runUntil = async (call: string, ...options: string[]): Promise<void> => {
      const killed = await runWatched(
        spec,
        { XDG_CACHE_HOME: cache, CRASH_ROOT: out, CRASH_AT: `before ${call}` },
        { args: options },
      );
      expect(killed.signal, killed.stderr).toBe("SIGKILL");
    };

    await runUntil("link part-00002 #1");
    await server.call("POST", "registered-models/alias", { name: "churn", alias: "champion", version: "2" });
    await rm(cache, { recursive: true });

    expect(JSON.parse((await run("run", spec, "--json")).stdout)).toMatchObject({ status: "complete" });
    await expectFinished(out, { golden: await goldenRows(fixture) });
    const origin = { uri: "models:/churn@champion", run_id: expect.stringMatching(/^[0-9a-f]{32}$/), tags: {} };
    expect(await manifest()).toMatchObject({ model: { ...origin, version: "1", tags: { stage: "prod" } } });

    const planned = await run("plan", spec);
    expect(planned.stdout).toMatch(/^model {4}models:\/churn@champion → version 2, sha256 /m);
    expect(planned.stderr).toContain("input `features` is float32 [N,10], declared as float64 [N,10]");

    await runUntil("link control/parts/part-00002 #1", "--new-run");
    await server.stop();
    await run("run", spec);
    expect(await manifest()).toMatchObject({ model: { ...origin, version: "2" } });
    const scores = (await outputRows(out)).map(({ score }) => Number(score));
    expect(scores).toHaveLength(fixture.rows);
    expect(Math.min(...scores)).toBeGreaterThan(900);
    expect(JSON.parse((await run("run", spec, "--json")).stdout)).toMatchObject({ status: "already_complete" });
  },
);
