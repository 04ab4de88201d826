import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { expectFigures, type Found, outputs, python, shifted, swapped } from "../support/challenger.js";
import { expectEnd, projectFolder, runHere } from "../support/cli.js";
import { differences, goldenRows } from "../support/golden.js";
import { scratch, scratchFolder, type SpecOverrides, writeSpec } from "../support/job.js";
import { lastJson } from "../support/nights.js";
import { hasEnd, pipeHere, rowsOf } from "../support/pipe.js";
import { streamOf } from "../support/pipe-job.js";
import { servedJob } from "../support/served-job.js";
import { onnxModel, serveV2, type V2Server } from "../support/v2-server.js";
import { fixtureNamed } from "../support/world.js";

const fixture = fixtureNamed("cancer-logistic");
const binding = { outputs, inputs: swapped, tolerance: python.tolerance };

interface Job extends AsyncDisposable {
  readonly server: V2Server;
  readonly spec: string;
  readonly out: string;
  write(overrides?: SpecOverrides & { readonly keys?: object }): Promise<void>;
}

/** A job with a champion on this machine, and a challenger that a server has. */
async function challengedJob(overrides: SpecOverrides & { readonly keys?: object } = {}): Promise<Job> {
  const folder = await scratchFolder();
  const model = await onnxModel("../challenger/shifted.onnx");
  const server = await serveV2(model);
  const write = async ({ keys = {}, ...more }: SpecOverrides & { readonly keys?: object } = {}): Promise<string> =>
    await writeSpec(folder.path, fixture, {
      commit_rows: 100,
      engine: { batch_size: 50 },
      retry: { max_seconds: 1 },
      model: { outputs },
      challenger: { server: { protocol: "v2", url: server.url, name: "m", ...keys }, ...binding },
      ...more,
    });
  return {
    server,
    spec: await write(overrides),
    out: join(folder.path, "out"),
    async write(more) {
      await write(more);
    },
    async [Symbol.asyncDispose]() {
      await server[Symbol.asyncDispose]();
      await model[Symbol.asyncDispose]();
      await folder[Symbol.asyncDispose]();
    },
  };
}

const run = async (spec: string): Promise<Awaited<ReturnType<typeof runHere>>> =>
  await runHere(["run", spec, "--json", "--no-progress"]);

test("the agreement of a served challenger with a local champion is that of numpy and scipy, and its token is shown nowhere", async () => {
  await using job = await challengedJob({ keys: { token: "very-secret" } });
  const sent: (string | undefined)[] = [];
  job.server.misbehave = ({ headers }) => {
    sent.push(headers.authorization);
    return undefined;
  };

  const done = await expectEnd(run(job.spec), 0);
  expectFigures(lastJson(done)["challenger"] as Found, python.swapped);
  expect(new Set(sent)).toEqual(new Set(["Bearer very-secret"]));
  const { run_id: runId } = lastJson(done) as { readonly run_id: string };
  const beside = join(
    job.out,
    "_challenger/_infer-batch",
    runId.replace("cancer-logistic", "cancer-logistic.challenger"),
  );
  const plan = await readFile(join(beside, "plan.json"), "utf8");
  expect(plan).toContain('"uri": "v2:m"');
  expect(`${done.stdout}${done.stderr}${plan}`).not.toContain("very-secret");
});

test("the agreement of a local challenger with a served champion is that of numpy and scipy", async () => {
  await using job = await servedJob({
    fixture: fixture.name,
    overrides: { model: { outputs }, challenger: { path: shifted, ...binding } },
  });

  const done = await job.run();

  expect(done, done.stderr).toMatchObject({ code: 0, report: { provider: "v2" } });
  expectFigures(done.report["challenger"] as Found, python.swapped);
});

test("a served challenger whose server goes away costs no row of the run, which is not compared", async () => {
  await using job = await challengedJob();
  job.server.misbehave = ({ number }) => (number > 6 ? { reset: "before" } : undefined);
  const done = await expectEnd(
    run(job.spec),
    0,
    /challenger: not whole, so that the predictions are not compared: .*ECONNRESET/,
  );
  expect(lastJson(done)).toMatchObject({ status: "complete", rows_scored: 569, rows_rejected: 0 });
  expect(lastJson(done)).not.toHaveProperty("challenger");
});

test("an unfinished run is finished without its served challenger if the server is unavailable", async () => {
  await using job = await challengedJob();
  await expectEnd(runHere(["run", job.spec, "--worker", "0/2"]), 0);
  await job.server[Symbol.asyncDispose]();
  const done = await expectEnd(run(job.spec), 0, "challenger: not whole");
  expect(lastJson(done)).toMatchObject({ status: "complete" });
});

test("a served challenger that is unavailable, unknown or another version when a run is planned ends the command, and plans nothing", async () => {
  await using job = await challengedJob({ keys: { name: "other" } });
  await expectEnd(run(job.spec), 64, /job\.yaml:\d+:\d+: challenger\.server/);
  await job.write({ keys: { url: "http://127.0.0.1:1" } });
  await expectEnd(run(job.spec), 75);

  await job.write();
  await expectEnd(runHere(["run", job.spec, "--worker", "0/2"]), 0);
  job.server.versions = ["2"];
  expect(lastJson(await run(job.spec))).toMatchObject({ challenger: { rows_compared: 569 } }); // all by version 2
  job.server.versions = ["3"];
  const anew = await runHere(["run", job.spec, "--new-run", "--json"]);
  expect(lastJson(anew)).toMatchObject({ challenger: { version: "3", rows_compared: 569 } });
});

test("a challenger with a path and a server, or a digest of a served model, is refused and named", async () => {
  await using job = await challengedJob({
    challenger: { path: shifted, server: { protocol: "v2", url: "http://x", name: "m" } },
  });
  await expectEnd(run(job.spec), 64, "challenger.server");
  await job.write({ challenger: { outputs } });
  await expectEnd(run(job.spec), 64, "write challenger.server instead of challenger.path");
});

test("a pipe scores with a model that a server has, and its predictions are those of Python", async () => {
  await using job = await servedJob({ fixture: fixture.name });
  const table = join(projectFolder, "fixtures/data", fixture.table);
  const input = await streamOf(scratch.path, `SELECT * FROM '${table}/*.parquet'`);

  const { output, error, report } = await pipeHere(job.spec, input);

  expect(error).toBeUndefined();
  expect(report).toMatchObject({ rowsScored: fixture.rows, rowsRejected: 0 });
  expect(hasEnd(output)).toBe(true);
  expect(differences(rowsOf(output), await goldenRows(fixture))).toEqual([]);
});
