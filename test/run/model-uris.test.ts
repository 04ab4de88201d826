import { readFile, rm } from "node:fs/promises";
import { createHash } from "node:crypto";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { expectEnd, runHere } from "../support/cli.js";
import { expectFinished } from "../support/crash.js";
import { goldenRows } from "../support/golden.js";
import { commitOf, serveFiles, serveHub } from "../support/hub.js";
import { scratch, writeSpec } from "../support/job.js";
import { projectFolder } from "../support/cli.js";
import { fixtureNamed } from "../support/world.js";

const fixture = fixtureNamed("diabetes-mlp");
const modelFile = join(projectFolder, "fixtures/models/diabetes-mlp.onnx");
const sha256Of = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");

describe("a model on the Hugging Face Hub", () => {
  test("a run that is interrupted goes on with the planned model: after the revision has moved, and without the Hub", async () => {
    const model = await readFile(modelFile);
    const hub = await serveHub({ "onnx/model.onnx": model });
    const env = { HF_ENDPOINT: hub.url, HF_TOKEN: hub.token, XDG_CACHE_HOME: join(scratch.path, "cache") };
    const path = "hf://org/model/onnx/model.onnx";
    const spec = await writeSpec(scratch.path, fixture, { commit_rows: 80, model: { path } });
    await expectEnd(runHere(["run", spec, "--worker", "0/2"], { env }), 0);
    hub.revisions.set(
      "main",
      new Map([["onnx/model.onnx", await readFile(join(projectFolder, "fixtures/models/cancer-logistic.onnx"))]]),
    );

    const other = await expectEnd(runHere(["run", spec, "--worker", "1/2", "--json"], { env }), 0);
    expect(JSON.parse(other.stdout)).toMatchObject({ status: "complete" });
    await expectFinished(join(scratch.path, "out"), { golden: await goldenRows(fixture) });

    await hub[Symbol.asyncDispose]();
    const again = await runHere(["run", spec, "--json"], { env });
    expect([again.code, JSON.parse(again.stdout)], again.stderr).toMatchObject([0, { status: "already_complete" }]);
  });

  test("a run is resumed with the planned commit without the cache, and ends with 66 when the commit is gone", async () => {
    await using hub = await serveHub({ "model.onnx": await readFile(modelFile) });
    const cache = join(scratch.path, "cache");
    const env = { HF_ENDPOINT: hub.url, XDG_CACHE_HOME: cache, HF_TOKEN: undefined, HF_HOME: scratch.path };
    const spec = await writeSpec(scratch.path, fixture, {
      commit_rows: 80,
      model: { path: "hf://org/model/model.onnx" },
    });
    await expectEnd(runHere(["run", spec, "--worker", "0/2"], { env }), 0);
    const planned = hub.revisions.get("main") ?? new Map<string, Uint8Array>();
    const other = await readFile(join(projectFolder, "fixtures/models/diabetes-mlp-batch32.onnx"));
    hub.revisions.set("main", new Map([["model.onnx", other]]));
    await rm(cache, { recursive: true });

    await expectEnd(
      runHere(["run", spec, "--worker", "1/2"], { env }),
      66,
      `has no revision ${commitOf(planned)}; this run was planned with version`,
    );

    hub.revisions.set("v1", planned);
    const resumed = await expectEnd(runHere(["run", spec, "--worker", "1/2", "--json"], { env }), 0);
    expect(JSON.parse(resumed.stdout)).toMatchObject({ status: "complete" });
    await expectFinished(join(scratch.path, "out"), { golden: await goldenRows(fixture) });
  });
});

test("a model at a URL is scored if it has the digest of the spec, and refused with 64 if not", async () => {
  const bytes = await readFile(modelFile);
  await using server = await serveFiles({ "churn.onnx": bytes });
  const env = { XDG_CACHE_HOME: join(scratch.path, "cache") };
  const path = `${server.url}/churn.onnx`;
  await expectEnd(
    runHere(["run", await writeSpec(scratch.path, fixture, { model: { path } })], { env }),
    64,
    "model.sha256: missing; expected the model's sha256 for a URL",
  );
  const wrong = await writeSpec(scratch.path, fixture, { model: { path, sha256: "0".repeat(64) } });
  await expectEnd(runHere(["run", wrong], { env }), 64);

  const spec = await writeSpec(scratch.path, fixture, { model: { path, sha256: sha256Of(bytes) } });
  await expectEnd(runHere(["run", spec], { env }), 0);
  await expectFinished(join(scratch.path, "out"), { golden: await goldenRows(fixture) });
});
