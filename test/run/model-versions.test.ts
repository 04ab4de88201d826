import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { type CliResult, expectEnd, projectFolder, runCli, runHere } from "../support/cli.js";
import { expectFinished } from "../support/crash.js";
import { goldenRows } from "../support/golden.js";
import { scratchFolder, writeSpec } from "../support/job.js";
import { writeRows } from "../support/parquet.js";
import { type Mlflow, serveChurn } from "../support/mlflow.js";
import { latch } from "../support/waiting.js";
import { fixtureNamed } from "../support/world.js";

const fixture = fixtureNamed("diabetes-mlp");
const rows = join(projectFolder, "fixtures/data/diabetes/*.parquet");
const predicted = join(projectFolder, "fixtures/golden/diabetes-mlp.parquet");

interface World extends AsyncDisposable {
  readonly mlflow: Mlflow;
  readonly out: string;
  readonly spec: (path?: string, checks?: object) => Promise<string>;
  readonly forgetModels: () => Promise<void>;
  readonly run: (args: readonly string[]) => Promise<CliResult>;
  /** Runs a command in a process of its own. @param machine has a cache of its own */
  readonly runApart: (args: readonly string[], machine: string) => Promise<CliResult>;
}

async function openWorld(): Promise<World> {
  const scratch = await scratchFolder();
  const mlflow = await serveChurn();
  const envOf = (cache: string): Record<string, string> => ({
    MLFLOW_TRACKING_URI: mlflow.url,
    XDG_CACHE_HOME: join(scratch.path, cache),
  });
  return {
    mlflow,
    out: join(scratch.path, "out"),
    spec: (path = "models:/churn@champion", checks) =>
      writeSpec(scratch.path, fixture, {
        commit_rows: 80,
        retry: { max_seconds: 1 },
        model: { path },
        ...(checks && { checks }),
      }),
    forgetModels: () => rm(join(scratch.path, "cache"), { recursive: true }),
    run: (args) => runHere(args, { env: envOf("cache") }),
    runApart: (args, machine) => runCli(args, { env: envOf(machine) }),
    async [Symbol.asyncDispose]() {
      await mlflow[Symbol.asyncDispose]();
      await scratch[Symbol.asyncDispose]();
    },
  };
}

const modelOf = async (out: string): Promise<unknown> =>
  (JSON.parse(await readFile(join(out, "_manifest.json"), "utf8")) as { model: unknown }).model;

describe("the version of a model", () => {
  test("workers that plan at the same time while an alias moves score with the version of the stored plan", async () => {
    await using world = await openWorld();
    const { mlflow } = world;
    const golden = join(world.out, "../golden.parquet");
    await writeRows(golden, `SELECT * FROM '${rows}' JOIN '${predicted}' USING (id) WHERE id < 40`);
    const spec = await world.spec(undefined, { golden: { path: golden, atol: 1e-4 } });
    const both = latch<void>();
    const answered = latch<void>();
    let asked = 0;
    mlflow.before = async (path) => {
      if (path === "registered-models/alias") {
        asked += 1;
        if (asked === 1) {
          await both.promise; // both workers have found no plan by then
        } else {
          both.resolve();
          await answered.promise;
          mlflow.aliases.set("champion", "2");
        }
      } else {
        answered.resolve();
      }
      return false;
    };
    const [one, other] = await Promise.all([
      world.runApart(["run", spec, "--worker", "0/2"], "machine-0"),
      world.runApart(["run", spec, "--worker", "1/2"], "machine-1"),
    ]);
    expect([one.code, other.code], `${one.stderr}${other.stderr}`).toEqual([0, 0]);
    const downloads = mlflow.requests.filter((request) => request.includes("get-download-uri")).toSorted();
    expect(new Set(downloads).size, "both versions were resolved").toBe(2);
    expect(downloads, "one worker fetched the version of the other's plan").toHaveLength(3);
    const checked = [...`${one.stderr}${other.stderr}`.matchAll(/predictions of 40 rows of .* are as expected/g)];
    expect(checked, "its golden rows were scored with that version, too").toHaveLength(3);
    await expectFinished(world.out, { golden: await goldenRows(fixture) });
  });

  test("of two workers that plan at the same time with different golden rows, the one whose plan is not stored ends with 66", async () => {
    await using world = await openWorld();
    const spec = await world.spec(undefined, { golden: { path: "golden.parquet", atol: 1e-3 } });
    const otherSpec = join(world.out, "../other/job.yaml");
    await mkdir(dirname(otherSpec));
    await writeFile(otherSpec, (await readFile(spec, "utf8")).replace('"path": "out"', `"path": "${world.out}"`));
    for (const [file, from] of [
      [spec, 0],
      [otherSpec, 10],
    ] as const) {
      const select = `SELECT * FROM '${rows}' JOIN '${predicted}' USING (id) WHERE id BETWEEN ${from} AND 40`;
      await writeRows(join(dirname(file), "golden.parquet"), select);
    }
    const both = latch<void>();
    let asked = 0;
    world.mlflow.before = async (path) => {
      if (path === "registered-models/alias") {
        asked += 1;
        if (asked === 2) {
          both.resolve();
        }
        await both.promise; // neither worker has found a plan by then
      }
      return false;
    };
    const ended = await Promise.all([
      world.runApart(["run", spec, "--worker", "0/2"], "machine-0"),
      world.runApart(["run", otherSpec, "--worker", "1/2"], "machine-1"),
    ]);
    const [winner, loser] = ended.toSorted((a, b) => Number(a.code) - Number(b.code));
    expect([winner?.code, loser?.code], ended.map(({ stderr }) => stderr).join("")).toEqual([0, 66]);
    expect(loser?.stderr).toMatch(
      /comparing golden\.parquet with the plan of this unfinished run: its sha256 is [0-9a-f]{64}, planned [0-9a-f]{64}/,
    );
  });

  test("a deleted planned version ends with 66, and --new-run uses the current version", async () => {
    await using world = await openWorld();
    const { mlflow } = world;
    const spec = await world.spec();
    await expectEnd(world.run(["run", spec, "--worker", "0/2"]), 0);
    mlflow.aliases.set("champion", "2");
    mlflow.versions.delete("1");
    await world.forgetModels();

    const gone = await world.run(["run", spec, "--worker", "1/2"]);
    expect([gone.code, gone.stderr.replaceAll(mlflow.url, "URL").replaceAll(spec, "<spec>")]).toMatchSnapshot();
    await expectEnd(world.run(["run", spec, "--new-run"]), 0);
    expect(await modelOf(world.out)).toMatchObject({ uri: "models:/churn@champion", version: "2" });
    await expectFinished(world.out, { golden: await goldenRows(fixture) });
  });

  test("replaced artifacts of a planned version end with 66, and an unreachable registry with 75", async () => {
    await using world = await openWorld();
    const { mlflow } = world;
    const spec = await world.spec();
    await expectEnd(world.run(["run", spec, "--worker", "0/2"]), 0);
    await world.forgetModels();
    const planned = mlflow.versions.get("1") ?? { files: new Map() };
    mlflow.versions.set("1", mlflow.versions.get("2") ?? planned);
    const replaced = await world.run(["run", spec, "--worker", "1/2"]);
    expect([replaced.code, replaced.stderr]).toMatchObject([
      66,
      expect.stringContaining("comparing models:/churn@champion with the plan of this unfinished run: its sha256 is"),
    ]);
    mlflow.versions.set("1", planned);
    await world.forgetModels();
    mlflow.before = (_path, response) => {
      response.destroy();
      return true;
    };
    await expectEnd(world.run(["run", spec, "--worker", "1/2"]), 75);
  });

  test("another URI in the spec ends with 66 without a request, even if it leads to the same model", async () => {
    await using world = await openWorld();
    await expectEnd(world.run(["run", await world.spec(), "--worker", "0/2"]), 0);
    world.mlflow.requests.length = 0;
    const changed = await world.run(["run", await world.spec("models:/churn/1"), "--worker", "1/2"]);
    expect([changed.code, changed.stderr]).toMatchObject([
      66,
      expect.stringContaining('model.path is "models:/churn/1", planned "models:/churn@champion"'),
    ]);
    expect(world.mlflow.requests).toEqual([]);
  });

  test("inspect and init accept a model of a registry", async () => {
    await using world = await openWorld();
    const shown = await world.run(["inspect", "models:/churn@champion"]);
    expect(shown.stdout, shown.stderr).toMatch(/^model {3}models:\/churn@champion → version 1\n/);
    const spec = `${world.out}.yaml`;
    await expectEnd(
      world.run(["init", spec, "--model", "models:/churn@champion", "--input", rows, "--columns", "id"]),
      0,
    );
    const text = await readFile(spec, "utf8");
    expect(text).toContain("name: churn\n");
    expect(text).toContain("path: models:/churn@champion");
    await expectEnd(world.run(["validate", spec]), 0);
    const refused = await world.run(["inspect", "azureml://registries/r/models/m/versions/1"]);
    expect(refused.stderr).toContain("az ml model download");
  });
});
