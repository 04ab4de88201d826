import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { openModelCache } from "#src/models/places/cache.js";
import { hubModels } from "#src/models/places/huggingface.js";
import { httpModels } from "#src/models/places/https.js";
import type { ModelPin, ModelSource, ResolvedModel } from "#src/models/places/place.js";
import { refusalOf } from "../../support/faulty.js";
import { commitOf, etagOf, type FileServer, type Hub, serveFiles, serveHub } from "../../support/hub.js";
import { scratchFolder } from "../../support/job.js";
import { modelWithWeights, retryClock } from "../../support/asked-places.js";
import { until } from "../../support/waiting.js";

interface World extends AsyncDisposable {
  readonly warnings: string[];
  readonly bytes: Awaited<ReturnType<typeof modelWithWeights>>;
  readonly server: FileServer;
  readonly hub: Hub;
  resolve(uri: string, pinned?: ModelPin, token?: string): Promise<ResolvedModel>;
}

const findProxy = (): undefined => undefined;

async function openWorld({ maxSeconds = 5 } = {}): Promise<World> {
  const scratch = await scratchFolder();
  const bytes = await modelWithWeights(scratch.path, "weights/bias.bin");
  const server = await serveFiles({ "models/net.onnx": bytes.model, "models/weights/bias.bin": bytes.weights });
  const hub = await serveHub({ "onnx/net.onnx": bytes.model, "onnx/weights/bias.bin": bytes.weights });
  const retry = retryClock({ maxSeconds });
  const { signal } = new AbortController();

  let writer = 0;
  const sourceOf = (uri: string, token: string | undefined): ModelSource => {
    writer += 1;
    const cache = openModelCache({ folder: join(scratch.path, "cache"), writer: `w${writer}`, isDead: () => false });
    return uri.startsWith("hf:")
      ? hubModels({ cache, retry, signal, findProxy, endpoint: hub.url, token })
      : httpModels({ cache, retry, signal, findProxy });
  };
  return {
    warnings: retry.warnings,
    bytes,
    server,
    hub,
    async resolve(uri, pinned, token) {
      using source = sourceOf(uri, token);
      return await source.resolve(uri, pinned);
    },
    async [Symbol.asyncDispose]() {
      await server[Symbol.asyncDispose]();
      await hub[Symbol.asyncDispose]();
      await scratch[Symbol.asyncDispose]();
    },
  };
}

const onHub = "hf://org/model/onnx/net.onnx";
const hashOf = (requests: readonly string[]): string[] =>
  requests.map((one) => one.replaceAll(/[0-9a-f]{40}/g, "<commit>"));

describe("a model at a URL", () => {
  test("a model at a URL is fetched once with its external data, and asked for by HEAD afterwards", async () => {
    await using world = await openWorld();
    const url = `${world.server.url}/models/net.onnx`;
    const { file } = await world.resolve(url);
    expect(world.server.requests).toEqual([
      "HEAD /models/net.onnx",
      "GET /models/net.onnx",
      "GET /models/weights/bias.bin",
    ]);
    expect(file.name).toBe(url);

    const again = await world.resolve(url);
    expect(again.file.sha256).toBe(file.sha256);
    expect(world.server.requests.slice(3)).toEqual(["HEAD /models/net.onnx", "HEAD /models/weights/bias.bin"]);

    world.server.files.set("models/net.onnx", world.bytes.other);
    expect((await world.resolve(url)).file.sha256).not.toBe(file.sha256);
  });

  test("a model at a URL with a pinned digest comes from the cache without a request, also if the server is gone", async () => {
    await using world = await openWorld();
    const url = `${world.server.url}/models/net.onnx`;
    const { file } = await world.resolve(url);
    world.server.requests.length = 0;
    world.server.files.clear();
    expect((await world.resolve(url, file)).file.path).toBe(file.path);
    expect(world.server.requests).toEqual([]);
  });

  test("a file that changes while it is fetched is MODEL_CHANGED", async () => {
    await using world = await openWorld();
    world.server.fail = (request, response) => {
      if (request.method !== "GET" || request.headers.range !== undefined) {
        return false;
      }
      response.writeHead(200, { etag: etagOf(world.bytes.model), "content-length": world.bytes.model.length });
      response.write(world.bytes.model.subarray(0, 10), () => {
        world.server.files.set("models/net.onnx", world.bytes.other);
        setTimeout(() => response.destroy(), 20);
      });
      return true;
    };
    expect(await refusalOf(world.resolve(`${world.server.url}/models/net.onnx`))).toContain("66 MODEL_CHANGED");
  });

  test("a response that is refused in the middle of its body is closed", async () => {
    await using world = await openWorld();
    const closed: string[] = [];
    let gets = 0;
    world.server.fail = (request, response) => {
      if (request.method !== "GET") {
        return false;
      }
      gets += 1;
      response.on("close", () => closed.push(request.method ?? ""));
      response.writeHead(200, { etag: `"state ${gets}"`, "content-length": 10_000_000 });
      response.write(new Uint8Array(1_000_000), () => gets === 1 && setTimeout(() => response.destroy(), 20));
      return true;
    };
    expect(await refusalOf(world.resolve(`${world.server.url}/models/net.onnx`))).toContain("66 MODEL_CHANGED");
    await until(() => closed.length === 2);
  });

  test.each([
    { status: 404, said: "64 FILE_MISSING" },
    { status: 403, said: "64 PERMISSION" },
    { status: 400, said: "64 FILE_MISSING" },
    { status: 503, said: "75 NETWORK" },
    { status: 429, said: "75 NETWORK" },
  ])("a server that answers $status ends with $said", async ({ status, said }) => {
    await using world = await openWorld();
    world.server.fail = (_request, response) => {
      response.writeHead(status, { "retry-after": "1" }).end();
      return true;
    };
    const refusal = await refusalOf(world.resolve(`${world.server.url}/models/net.onnx`));
    expect(refusal).toContain(said);
    expect(refusal).toContain("/models/net.onnx");
    expect(world.warnings.length > 0).toBe(said.startsWith("75"));
  });

  test("a server that is not there ends with 75 after retries, and one that returns in between does not", async () => {
    await using world = await openWorld();
    const url = `${world.server.url}/models/net.onnx`;
    let calls = 0;
    world.server.fail = (_request, response) => {
      calls += 1;
      if (calls <= 2) {
        response.destroy();
      }
      return calls <= 2;
    };
    expect((await world.resolve(url)).file.sizeBytes).toBeGreaterThan(0);
    await world.server[Symbol.asyncDispose]();
    expect(await refusalOf(world.resolve(url))).toMatch(
      /^75 NETWORK\nloading model http:.*ECONNREFUSED.*\(tried \d+ times/s,
    );
  });

  test.each([{ to: "http://[::bad/net.onnx" }, { to: "ftp://files.example/net.onnx" }, { to: "file:///etc/passwd" }])(
    "a redirect to $to ends with 64",
    async ({ to }) => {
      await using world = await openWorld();
      world.server.fail = (_request, response) => {
        response.writeHead(302, { location: to }).end();
        return true;
      };
      expect(await refusalOf(world.resolve(`${world.server.url}/models/net.onnx`))).toMatch(
        /^64 FILE_MISSING\n.*\/models\/net\.onnx with HTTP 302/,
      );
    },
  );

  test("a server that does not speak TLS ends with 64", async () => {
    await using world = await openWorld();
    const url = `${world.server.url.replace("http:", "https:")}/models/net.onnx`;
    expect(await refusalOf(world.resolve(url))).toMatch(/^64 PERMISSION\n.*does not speak TLS/);
  });
});

describe("a model on the Hugging Face Hub", () => {
  test("a model on the Hub is fetched by commit, its token is not sent to the content network", async () => {
    await using world = await openWorld();
    const { token } = world.hub;
    const { file, version } = await world.resolve(onHub, undefined, token);
    const main = world.hub.revisions.get("main") ?? new Map<string, Uint8Array>();
    expect(version).toBe(commitOf(main));
    expect(await readFile(file.path)).toEqual(Buffer.from(world.bytes.model));
    expect(world.hub.requests.every((one) => one.endsWith(" token"))).toBe(true);
    expect(hashOf(world.hub.requests).slice(0, 3)).toEqual([
      "GET /api/models/org/model/revision/main token",
      "HEAD /org/model/resolve/<commit>/onnx/net.onnx token",
      "HEAD /org/model/resolve/<commit>/onnx/net.onnx token",
    ]);
    expect(world.hub.network.requests).toEqual(["GET /onnx/net.onnx", "GET /onnx/weights/bias.bin"]);
  });

  test("a revision that moves is another model, an older commit is found by name", async () => {
    await using world = await openWorld();
    const first = await world.resolve(onHub);
    world.hub.revisions.set("v1", world.hub.revisions.get("main") ?? new Map());
    world.hub.revisions.set(
      "main",
      new Map([
        ["onnx/net.onnx", world.bytes.other],
        ["onnx/weights/bias.bin", world.bytes.weights],
      ]),
    );
    const moved = await world.resolve(onHub);
    expect(moved.file.sha256).not.toBe(first.file.sha256);
    expect((await world.resolve("hf://org/model@v1/onnx/net.onnx")).file.sha256).toBe(first.file.sha256);
    expect((await world.resolve(`hf://org/model@${first.version}/onnx/net.onnx`)).file.sha256).toBe(first.file.sha256);
  });

  test("a file that is damaged on the way ends with 75", async () => {
    await using world = await openWorld();
    world.hub.network.fail = (request, response) => {
      response.writeHead(200, { "content-length": world.bytes.model.length });
      response.end(request.method === "HEAD" ? undefined : new Uint8Array(world.bytes.model.length));
      return true;
    };
    expect(await refusalOf(world.resolve(onHub))).toMatch(/^75 NETWORK\n.*onnx\/net\.onnx came with SHA-256/);
  });

  test.each([
    ["hf://org/private/onnx/net.onnx", undefined],
    ["hf://org/none/onnx/net.onnx", "hf_test"],
    ["hf://org/gated/onnx/net.onnx", undefined],
    ["hf://org/model@v9/onnx/net.onnx", undefined],
    ["hf://org/model/onnx/none.onnx", undefined],
    ["hf://org/model/onnx/net.onnx", "hf_wrong"],
  ])("%s with token %s is refused, and the message says why", async (uri, token) => {
    await using world = await openWorld();
    expect(await refusalOf(world.resolve(uri, undefined, token))).toMatchSnapshot();
  });
});
