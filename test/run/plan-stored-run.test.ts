import { copyFile, mkdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { type CliResult, expectEnd, projectFolder, runCli, runHere } from "../support/cli.js";
import { type Fixture, type SpecOverrides, scratchFolder, writeSpec } from "../support/job.js";
import { serveChurn } from "../support/mlflow.js";
import { useS3 } from "../support/s3.js";
import { fixtureNamed } from "../support/world.js";

// `plan` ends as `run` does where the target has a run that no longer needs its input or its model.

const wine = fixtureNamed("wine-forest");
const diabetes = fixtureNamed("diabetes-mlp");
const s3 = useS3();

interface World extends AsyncDisposable {
  readonly folder: string;
  readonly spec: string;
  /** Runs `plan`, then `run`, and expects that both end with this code. Returns what `plan` printed. */
  readonly expectAlike: (code: number, said?: RegExp) => Promise<CliResult>;
  readonly run: (...options: string[]) => Promise<number>;
  readonly rewrite: (overrides: SpecOverrides) => Promise<string>;
}

/** A job whose input, marker and model are copies in its folder. */
async function openWorld(overrides: SpecOverrides = {}, fixture: Fixture = wine, registry?: string): Promise<World> {
  const scratch = await scratchFolder();
  const folder = scratch.path;
  await mkdir(join(folder, "in"));
  const table = join(projectFolder, "fixtures/data", fixture.table);
  await copyFile(join(table, "part-00000.parquet"), join(folder, "in/one.parquet"));
  await copyFile(join(projectFolder, "fixtures/models", fixture.model), join(folder, "model.onnx"));
  await writeFile(join(folder, "in/_READY"), "");
  const local = { input: { path: "in/*.parquet", ready: "in/_READY" }, model: { path: "model.onnx" } };
  const rewrite = (other: SpecOverrides): Promise<string> =>
    writeSpec(folder, fixture, { ...local, ...overrides, ...other });
  const spec = await rewrite({});
  const env = {
    XDG_CACHE_HOME: join(folder, "cache"),
    ...(registry !== undefined && { MLFLOW_TRACKING_URI: registry }),
  };
  const run = (...options: string[]): Promise<CliResult> => runHere(["run", spec, "--quiet", ...options], { env });
  return {
    folder,
    spec,
    rewrite,
    run: async (...options) => (await run(...options)).code ?? -1,
    async expectAlike(code, said = /(?:)/) {
      const planned = await expectEnd(runHere(["plan", spec], { env }), code, said);
      await expectEnd(run(), code, said);
      return planned;
    },
    [Symbol.asyncDispose]: () => scratch[Symbol.asyncDispose](),
  };
}

const jsonOf = async (spec: string): Promise<unknown> => JSON.parse((await runHere(["plan", spec, "--json"])).stdout);

test("plan ends with 0 as run does for a complete run whose marker, input or model is gone, and says that it made no plan", async () => {
  await using world = await openWorld();
  expect(await world.run()).toBe(0);
  await rm(join(world.folder, "in/_READY"));
  const unready = await world.expectAlike(0);
  expect(unready.stdout).toMatch(
    /^target .*, which has this run: published\nuntried {2}the plan of a new run: waiting for input: .*_READY.*\n$/,
  );

  await writeFile(join(world.folder, "in/_READY"), "");
  await rm(join(world.folder, "model.onnx"));
  expect((await world.expectAlike(0)).stdout).toMatch(/untried {2}the plan of a new run: .*model\.onnx/);

  await rm(join(world.folder, "in"), { recursive: true });
  expect((await world.expectAlike(0)).stdout).toMatch(/untried {2}the plan of a new run: .*in\/_READY/);
  const json = await jsonOf(world.spec);
  expect(json).toEqual({
    found: { run_id: expect.stringMatching(/^wine-forest-/), status: "published" },
    untried: [expect.stringContaining("the plan of a new run: ")],
  });
});

test("plan ends with 0 as run does for a complete run that was scored with a provider that this machine lacks", async () => {
  await using world = await openWorld();
  expect(await world.run()).toBe(0);
  await world.rewrite({ engine: { providers: ["coreml"] } });
  const { stdout } = await world.expectAlike(0);
  expect(stdout).toMatch(/untried {2}the plan of a new run: .*execution provider coreml/);
});

test("plan ends with 67 as run does for a held and a discarded run whose input is gone", async () => {
  await using world = await openWorld({ checks: { outputs: { label: { range: [8, 9] } } } });
  expect(await world.run()).toBe(67);
  await rm(join(world.folder, "in"), { recursive: true });
  const { stdout } = await world.expectAlike(67, /it is held and not published/);
  expect(stdout).toContain("which has this run: held\nuntried  the plan of a new run: ");
  await expectEnd(runHere(["discard", world.spec, "--reason", "wrong"]), 0);
  await world.expectAlike(67, /discarded it at/);
});

test("plan ends as run does for an unfinished run whose model file was replaced by another model, or is gone", async () => {
  await using world = await openWorld({ commit_rows: 20 });
  expect(await world.run("--worker", "0/2")).toBe(0);
  await copyFile(join(projectFolder, "fixtures/models/diabetes-mlp.onnx"), join(world.folder, "model.onnx"));
  await world.expectAlike(66, /comparing model\.onnx with the plan of this unfinished run: its sha256 is/);
  await rm(join(world.folder, "model.onnx"));
  await world.expectAlike(64, /model\.onnx/);
});

test("plan ends as run does for an unfinished run whose spec has changed, and for one that has rejected more rows than it may now", async () => {
  await using world = await openWorld({ commit_rows: 20, engine: { threads: 1 } });
  const columns = { alcohol: "if(id = 5, NULL, alcohol)" };
  const keys = { input: { path: "in/*.parquet", columns }, on_bad_row: "reject", max_rejects: 1 };
  await world.rewrite(keys);
  expect(await world.run("--worker", "0/2")).toBe(0);
  await world.rewrite({ ...keys, timezone: "Asia/Tokyo" });
  await world.expectAlike(66, /timezone is "Asia\/Tokyo"/);
  await world.rewrite({ ...keys, max_rejects: 0 });
  await world.expectAlike(65, /max_rejects/);
});

test("plan ends with 0 as run does for an unfinished run whose alias has moved to a model of another signature, and whose marker is gone", async () => {
  await using mlflow = await serveChurn();
  const files = new Map(mlflow.versions.get("1")?.files);
  files.set("model.onnx", await readFile(join(projectFolder, "fixtures/models", wine.model)));
  mlflow.versions.set("8", { files });
  const model = { path: "models:/churn@champion" };
  await using world = await openWorld({ commit_rows: 20, model, retry: { max_seconds: 1 } }, diabetes, mlflow.url);
  expect(await world.run("--worker", "0/2")).toBe(0);
  mlflow.aliases.set("champion", "8");
  await rm(join(world.folder, "in/_READY"));

  const { stdout } = await world.expectAlike(0);

  expect(stdout).toContain("models:/churn@champion → version 1,");
  expect(stdout).toContain(", which has this run: unfinished\n");
});

test("plan ends as run does while the registry is away: with 0 for a run that is complete or whose model is cached, else with 75", async () => {
  const mlflow = await serveChurn();
  const model = { path: "models:/churn@champion" };
  await using world = await openWorld({ commit_rows: 20, model, retry: { max_seconds: 1 } }, diabetes, mlflow.url);
  expect(await world.run("--worker", "0/2")).toBe(0);
  await mlflow[Symbol.asyncDispose]();

  await rename(join(world.folder, "cache"), join(world.folder, "away"));
  await world.expectAlike(75, /models:\/churn/);
  await rm(join(world.folder, "cache"), { recursive: true, force: true });
  await rename(join(world.folder, "away"), join(world.folder, "cache"));
  await world.expectAlike(0);
  expect((await world.expectAlike(0)).stdout).toMatch(/this run: published\nuntried {2}the plan of a new run: /);
});

test("plan ends with 0 as run does for an unfinished run of which no new run could be planned, and shows the stored plan", async () => {
  await using world = await openWorld({ commit_rows: 20 });
  expect(await world.run("--worker", "0/2")).toBe(0);
  await world.rewrite({ input: { path: "in/*.parquet", min_rows: 1_000_000 }, commit_rows: 20 });
  const { stdout } = await world.expectAlike(0);
  expect(stdout).toMatch(/^run {6}wine-forest-[^]*this run: unfinished\nuntried {2}the plan of a new run: .*min_rows/m);
});

s3.describe("plan of a complete run in S3", () => {
  test("plan ends with 0 as run does for a complete run in S3 on a machine without a folder for temporary files", async () => {
    const { name } = await s3.server().createBucket();
    await using world = await openWorld({ output: { parquet: { path: `s3://${name}/out` } } });
    const env = s3.server().env();
    await expectEnd(runCli(["run", world.spec, "--quiet"], { env }), 0);
    const file = join(world.folder, "file");
    await writeFile(file, "");
    for (const command of ["plan", "run"]) {
      await expectEnd(runCli([command, world.spec], { env: { ...env, TMPDIR: file } }), 0);
    }
  });
});
