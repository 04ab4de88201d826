import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { openModelCache } from "#src/models/places/cache.js";
import { mlflowModels } from "#src/models/places/mlflow.js";
import type { ModelPin, ResolvedModel } from "#src/models/places/place.js";
import { identity, refusalOf } from "../../support/faulty.js";
import { scratchFolder } from "../../support/job.js";
import { type Mlflow, onnxArtifacts, serveMlflow } from "../../support/mlflow.js";
import { modelWithWeights, retryClock } from "../../support/asked-places.js";
import { writeModel } from "../../support/onnx.js";

interface World extends AsyncDisposable {
  readonly mlflow: Mlflow;
  readonly model: Uint8Array;
  readonly weights: Uint8Array;
  resolve(uri: string, options?: { pinned?: ModelPin; env?: Record<string, string> }): Promise<ResolvedModel>;
  refusal(uri: string, options?: { pinned?: ModelPin; env?: Record<string, string> }): Promise<string>;
}

const randomName = "d01e2ed4-e71f-11f1-bce1-02fc00000001.data";
const signature = (dtype: string): { inputs: unknown; outputs: unknown } => ({
  inputs: [{ name: "x", type: "tensor", "tensor-spec": { dtype, shape: [-1, 1] } }],
  outputs: [{ name: "score", type: "tensor", "tensor-spec": { dtype: "float32", shape: [-1, 1] } }],
});

/** Version 7 is the champion, with external data; version 8 the challenger. */
async function openWorld(): Promise<World> {
  const scratch = await scratchFolder();
  const { model, weights } = await modelWithWeights(scratch.path, randomName);
  const path = join(scratch.path, "challenger.onnx");
  await writeModel(path, identity);
  const mlflow = await serveMlflow({
    "7": {
      files: onnxArtifacts({ "model.onnx": model, [randomName]: weights }, signature("float32")),
      runId: "r7",
      tags: { stage: "prod", "mlflow.user": "root" },
    },
    "8": { files: onnxArtifacts({ "model.onnx": await readFile(path) }) },
  });
  mlflow.aliases.set("champion", "7").set("challenger", "8");
  const retry = retryClock({ maxSeconds: 5 });
  let writer = 0;
  const resolve: World["resolve"] = async (uri, { pinned, env = {} } = {}) => {
    writer += 1;
    using source = mlflowModels({
      cache: openModelCache({ folder: join(scratch.path, "cache"), writer: `w${writer}`, isDead: () => false }),
      retry,
      signal: new AbortController().signal,
      findProxy: () => undefined,
      registryUrl: undefined,
      env: { MLFLOW_TRACKING_URI: `${mlflow.url}/`, ...env },
      openStore: () => Promise.reject(new Error("no S3 here")),
    });
    return await source.resolve(uri, pinned);
  };
  return {
    mlflow,
    model,
    weights,
    resolve,
    refusal: async (uri, options) => (await refusalOf(resolve(uri, options))).replaceAll(/127\.0\.0\.1:\d+/g, "server"),
    async [Symbol.asyncDispose]() {
      await mlflow[Symbol.asyncDispose]();
      await scratch[Symbol.asyncDispose]();
    },
  };
}

const flavors = (names: string): ReadonlyMap<string, Uint8Array> =>
  new Map([["MLmodel", Buffer.from(`flavors:\n${names}\n`)]]);

describe("a model of MLflow", () => {
  test("an alias is resolved to its version, which is fetched with external data of any name", async () => {
    await using world = await openWorld();
    const resolved = await world.resolve("models:/churn@champion");
    expect(await readFile(resolved.file.path)).toEqual(Buffer.from(world.model));
    expect(resolved).toMatchObject({ version: "7", origin: { runId: "r7", tags: { stage: "prod" } } });
    expect(resolved.origin?.tags).not.toHaveProperty("mlflow.user");
    expect(world.mlflow.requests).toEqual([
      "GET registered-models/alias?name=churn&alias=champion",
      "GET model-versions/get-download-uri?name=churn&version=7",
      "GET mlflow-artifacts/artifacts?path=1%2Fmodels%2Fm-7%2Fartifacts",
      "GET mlflow-artifacts/artifacts/1/models/m-7/artifacts/MLmodel",
      "GET mlflow-artifacts/artifacts/1/models/m-7/artifacts/model.onnx",
      `GET mlflow-artifacts/artifacts/1/models/m-7/artifacts/${randomName}`,
    ]);
  });

  test("a model of MLflow in the cache is not fetched again, and needs no registry if it is pinned", async () => {
    await using world = await openWorld();
    const { file } = await world.resolve("models:/churn@champion");
    world.mlflow.requests.length = 0;
    expect((await world.resolve("models:/churn@champion")).file.path).toBe(file.path);
    expect(world.mlflow.requests.filter((request) => request.includes("onnx"))).toEqual([]);

    await world.mlflow[Symbol.asyncDispose]();
    const pinned = { sha256: file.sha256, version: "7" };
    expect((await world.resolve("models:/churn@champion", { pinned })).file.path).toBe(file.path);
  });

  test("a pinned version is fetched without resolving the alias", async () => {
    await using world = await openWorld();
    world.mlflow.aliases.set("champion", "8");
    const { version } = await world.resolve("models:/churn@champion", {
      pinned: { sha256: "0".repeat(64), version: "7" },
    });
    expect(version).toBe("7");
    expect(world.mlflow.requests[0]).toBe("GET model-versions/get-download-uri?name=churn&version=7");
  });

  test.each([
    ["models:/churn/7", "7"],
    ["models:/churn/latest", "10"],
    ["models:/m-7", "m-7"],
    ["runs:/r7/model", "m-7"],
  ])("%s is version %s", async (uri, version) => {
    await using world = await openWorld();
    world.mlflow.versions.set("10", world.mlflow.versions.get("7") ?? { files: new Map() });
    const pinned = await world.resolve(uri);
    expect(pinned.version).toBe(version);
    expect(await readFile(pinned.file.path)).toEqual(Buffer.from(world.model));
  });

  test("files that the server keeps in a store of its own are read through the server", async () => {
    await using world = await openWorld();
    const { files } = world.mlflow.versions.get("7") ?? { files: new Map<string, Uint8Array>() };
    world.mlflow.versions.set("7", { files, artifactUri: "hdfs://cluster/7" });
    expect(await readFile((await world.resolve("models:/churn/7")).file.path)).toEqual(Buffer.from(world.model));
  });

  test("the login is a token, or user and password", async () => {
    await using world = await openWorld();
    world.mlflow.login = "Bearer glpat-1";
    await world.resolve("models:/churn/7", { env: { MLFLOW_TRACKING_TOKEN: "glpat-1" } });
    world.mlflow.login = `Basic ${Buffer.from("ann:secret").toString("base64")}`;
    await world.resolve("models:/churn/8", {
      env: { MLFLOW_TRACKING_USERNAME: "ann", MLFLOW_TRACKING_PASSWORD: "secret", MLFLOW_TRACKING_TOKEN: "other" },
    });
    const withLogin = world.mlflow.url.replace("//", "//ann:secret@");
    await world.resolve("models:/churn@champion", { env: { MLFLOW_TRACKING_URI: withLogin } });
  });

  test("a refusal of the registry is reported with a remedy", async () => {
    await using world = await openWorld();
    const pinned = { sha256: "0".repeat(64), version: "6" };
    expect(await world.refusal("models:/churn@nope")).toMatchSnapshot("an alias that is missing");
    expect(await world.refusal("models:/other@champion")).toMatchSnapshot("a model that is missing");
    expect(await world.refusal("models:/churn/9")).toMatchSnapshot("a version that is missing");
    expect(await world.refusal("models:/churn@champion", { pinned })).toMatchSnapshot("a pinned version that is gone");
    expect(await world.refusal("models:/churn/7", { env: { MLFLOW_TRACKING_URI: "" } })).toMatchSnapshot("no registry");
    expect(await world.refusal("models:/churn/7", { env: { MLFLOW_TRACKING_URI: "databricks" } })).toMatchSnapshot(
      "Databricks",
    );
    const elsewhere = { MLFLOW_TRACKING_URI: world.mlflow.url.replace("/mlflow", "/other") };
    expect(await world.refusal("models:/churn/7", { env: elsewhere })).toMatchSnapshot("another path");
    world.mlflow.login = "Bearer right";
    expect(await world.refusal("models:/churn/7")).toMatchSnapshot("no login");
    expect(await world.refusal("models:/churn/7", { env: { MLFLOW_TRACKING_TOKEN: "wrong" } })).toMatchSnapshot(
      "a wrong token",
    );
    expect(await world.refusal("models:/churn/7", { env: { MLFLOW_TRACKING_TOKEN: "two\nlines" } })).toMatchSnapshot(
      "a token of two lines",
    );
    world.mlflow.before = (_path, response) => {
      response.writeHead(403).end("Invalid Host header - possible DNS rebinding attack detected");
      return true;
    };
    expect(await world.refusal("models:/churn/7")).toMatchSnapshot("a host that the server does not expect");
  });

  test("missing, damaged and non-ONNX files of an MLflow model are reported", async () => {
    await using world = await openWorld();
    const files = (more: ReadonlyMap<string, Uint8Array>): void => {
      world.mlflow.versions.set("9", { files: more });
    };
    files(flavors("  sklearn: {pickled_model: model.pkl}\n  python_function: {}"));
    expect(await world.refusal("models:/churn/9")).toMatchSnapshot("scikit-learn");
    files(flavors("  spark: {}"));
    expect(await world.refusal("models:/churn/9")).toMatchSnapshot("another flavor");
    files(new Map([["MLmodel", Buffer.from("{")]]));
    expect(await world.refusal("models:/churn/9")).toMatchSnapshot("a damaged MLmodel");
    files(new Map());
    expect(await world.refusal("models:/churn/9")).toMatchSnapshot("no files");
    files(onnxArtifacts({ "model.onnx": world.model }));
    expect(await world.refusal("models:/churn/9")).toMatchSnapshot("external data that is missing");
    files(onnxArtifacts({ "model.onnx": Buffer.from("not a model") }));
    expect(await world.refusal("models:/churn/9")).toMatchSnapshot("a damaged model");
    files(onnxArtifacts({ "model.onnx": world.model, [randomName]: world.weights }));
    world.mlflow.before = (path, response) => {
      const isModel = path.endsWith("model.onnx");
      if (isModel) {
        response.writeHead(200).end(world.model.subarray(0, 20)); // without its length, as behind S3
      }
      return isModel;
    };
    expect(await world.refusal("models:/churn/9")).toMatchSnapshot("a model that is cut off");
  });

  test("an unreachable registry ends with 75 after retries, unless it returns before", async () => {
    await using world = await openWorld();
    let calls = 0;
    world.mlflow.before = (_path, response) => {
      calls += 1;
      if (calls <= 2) {
        response.writeHead(503).end();
      }
      return calls <= 2;
    };
    expect((await world.resolve("models:/churn@champion")).version).toBe("7");
    await world.mlflow[Symbol.asyncDispose]();
    expect(await world.refusal("models:/churn/8")).toMatch(/^75 NETWORK\nloading model models:\/churn\/8: ECONN/);
  });
});
