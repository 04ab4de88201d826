import { setTimeout as sleep } from "node:timers/promises";
import { brotliCompressSync, gzipSync } from "node:zlib";
import { expect, test } from "vitest";
import type { ServedModel } from "#src/models/binding/model-facts.js";
import type { NamedTensor } from "#src/columns/tensor.js";
import type { Engine, EngineResponse } from "#src/models/engine.js";
import { openServedEngine } from "#src/models/served/engine.js";
import type { ModelServer } from "#src/models/served/server.js";
import { v2 } from "#src/models/served/v2.js";
import { modelServerAt, retryClock } from "../../support/asked-places.js";
import { serveV2, type V2Request, type V2Server } from "../../support/v2-server.js";

interface World extends AsyncDisposable {
  readonly server: V2Server;
  readonly client: Engine;
  readonly waitedSeconds: () => number;
}

async function worldOf({
  version,
  most = 1,
  retry = {},
}: {
  readonly version?: string;
  readonly most?: number;
  readonly retry?: Partial<ModelServer["retry"]>;
} = {}): Promise<World> {
  const one = { datatype: "FP32", shape: [-1, 1] };
  const server = await serveV2({
    inputs: [{ name: "x", ...one }],
    outputs: [{ name: "y", ...one }],
    predict: (inputs) => Promise.resolve(inputs.map((input) => ({ ...input, name: "y" }))),
  });
  const tools = retryClock(retry);
  const about = modelServerAt(server.url, tools, most);
  const x = { name: "x", dtype: "float32", shape: [null, 1] };
  const signature = { inputs: [x], outputs: [{ ...x, name: "y" }] };
  const served = { signature, version, isVersionInPath: false, isBinary: true, mostRows: undefined };
  return {
    server,
    client: openServedEngine(v2, [about], { served, isPlanned: false } as unknown as ServedModel),
    waitedSeconds: () => tools.nowMs() / 1000,
    async [Symbol.asyncDispose]() {
      about.connections[Symbol.dispose]();
      await server[Symbol.asyncDispose]();
    },
  };
}

const valuesOf = ({ inputs: [input] }: V2Request): number[] => [...((input?.values ?? []) as Float32Array)];

async function ask(client: Engine, data: Float32Array<ArrayBuffer>, isBlank?: true): Promise<EngineResponse> {
  const x: NamedTensor = { name: "x", dtype: "float32", dims: [data.length, 1], data };
  return await client.run({ inputs: [x], outputs: ["y"], isBlank });
}

test("a version that only answers name must stay the same, as one that the plan pins", async () => {
  await using world = await worldOf();
  const { server, client } = world;
  expect(await ask(client, Float32Array.of(1))).toMatchObject({ kind: "done" });
  server.versions = ["2"];
  await expect(ask(client, Float32Array.of(1))).rejects.toMatchObject({
    code: "MODEL_CHANGED",
    message: expect.stringContaining("version 2 answered, and this run is scored with version 1") as string,
  });
});

test("a row on which the server fails four times (500) is asked for a fifth time", async () => {
  await using world = await worldOf();
  const { server, client } = world;
  await ask(client, Float32Array.of(1));
  let faults = 0;
  server.misbehave = (request) => {
    faults += valuesOf(request).includes(2) ? 1 : 0;
    return valuesOf(request).includes(2) && faults <= 4 ? { status: 500 } : undefined;
  };
  expect(await ask(client, Float32Array.of(2))).toMatchObject({ kind: "done" });
});

test("a row on which the server fails again and again is refused if it still answers what it answered before", async () => {
  await using world = await worldOf();
  const { server, client } = world;
  const memory = Float32Array.of(1);
  await ask(client, memory);
  memory[0] = 2; // the memory of a batch is used again
  server.misbehave = (request) => (valuesOf(request).includes(2) ? { status: 500, said: "bad" } : undefined);
  expect(await ask(client, memory)).toMatchObject({ kind: "failed", message: "the server answered 500: bad" });
});

test("a row for which the server answers null is refused, and says so", async () => {
  await using world = await worldOf();
  const { server, client } = world;
  const output = { name: "y", shape: [1, 1], datatype: "FP32", data: [null] };
  server.misbehave = () => ({ text: JSON.stringify({ model_name: "m", outputs: [output] }) });
  expect(await ask(client, Float32Array.of(1))).toMatchObject({
    kind: "failed",
    message: expect.stringMatching(/^the answer has .*null/) as string,
  });
});

test("a server that has answered nothing yet is unavailable when it fails: no row is refused", async () => {
  await using world = await worldOf();
  const { server, client, waitedSeconds } = world;
  server.misbehave = () => ({ status: 500 });
  await expect(ask(client, Float32Array.of(1))).rejects.toMatchObject({ code: "NETWORK" });
  expect(waitedSeconds()).toBeGreaterThan(30);
});

test("a server that takes no more requests (503) has fewer in flight from then on", async () => {
  await using world = await worldOf({ most: 2 });
  const { server, client } = world;
  const arrivals: number[] = [];
  server.misbehave = ({ number }) => {
    arrivals.push(performance.now());
    return number === 1 ? { status: 503 } : { delayMs: 50 };
  };
  await Promise.all(Array.from({ length: 5 }, () => ask(client, Float32Array.of(1))));
  const gaps = arrivals.slice(3).map((ms, index) => ms - (arrivals[index + 2] ?? 0));
  expect(gaps.length).toBeGreaterThan(2);
  expect(Math.min(...gaps)).toBeGreaterThan(25);
});

test("a made-up row on which the server fails is refused, though it has answered nothing yet", async () => {
  await using world = await worldOf();
  const { server, client } = world;
  server.misbehave = () => ({ status: 500 });
  expect(await ask(client, Float32Array.of(0), true)).toMatchObject({ kind: "failed" });
});

test("a server that does not know the model while it starts (404) is asked again; later the answer is final", async () => {
  await using world = await worldOf({ version: "1" });
  const { server, client } = world;
  server.isReady = false;
  let answers = 0;
  server.misbehave = () => {
    answers += 1;
    server.isReady = answers >= 3;
    return answers <= 3 ? { status: 404 } : undefined;
  };
  await expect(ask(client, Float32Array.of(1))).rejects.toMatchObject({ code: "MODEL_CHANGED" });
  expect(answers).toBe(3);
});

test("requests to a server that has lost its model end so, also if the breaker would be tried too late for them", async () => {
  // With this number, a breaker that takes the server for down is tried at 0.98 s and at 2.02 s.
  const retry = { maxSeconds: 2, nowMs: () => performance.now(), random: () => 0.3, sleep: (ms: number) => sleep(ms) };
  await using world = await worldOf({ version: "1", most: 8, retry });
  const { server, client } = world;
  await ask(client, Float32Array.of(1));
  server.misbehave = () => ({ status: 404, said: "unknown model" });
  const ended = await Promise.allSettled(Array.from({ length: 8 }, () => ask(client, Float32Array.of(2))));
  const codes = ended.map((one) =>
    one.status === "rejected" ? (one.reason as { code: string }).code : one.value.kind,
  );
  expect(new Set(codes)).toEqual(new Set(["MODEL_CHANGED"]));
});

test("a server that has lost its model for a while may lose it again later", async () => {
  const clock = retryClock();
  await using world = await worldOf({ version: "1", retry: clock });
  const { server, client } = world;
  await ask(client, Float32Array.of(1));
  for (let outage = 0; outage < 2; outage += 1) {
    let answers = 0;
    server.misbehave = () => ((answers += 1) === 1 ? { status: 404 } : undefined);
    expect(await ask(client, Float32Array.of(1))).toMatchObject({ kind: "done" });
    await clock.sleep(100_000);
  }
});

test("a rate that the headers of a refusal name is kept", async () => {
  await using world = await worldOf();
  const { server, client, waitedSeconds } = world;
  const headers = { "x-ratelimit-limit-requests": "6", "x-ratelimit-remaining-requests": "0" };
  let answers = 0;
  server.misbehave = () => ((answers += 1) === 1 ? { status: 429, headers } : undefined);
  expect(await ask(client, Float32Array.of(1))).toMatchObject({ kind: "done" });
  expect(waitedSeconds()).toBeGreaterThan(9); // six a minute
});

test.each([
  ["gzip", gzipSync],
  ["br", brotliCompressSync],
] as const)("an answer that a proxy has compressed is read (%s)", async (encoding, compress) => {
  await using world = await worldOf();
  const { server, client } = world;
  const output = { name: "y", shape: [1, 1], datatype: "FP32", data: [7] };
  server.misbehave = () => ({ text: compress(JSON.stringify({ model_name: "m", outputs: [output] })), encoding });
  expect(await ask(client, Float32Array.of(1))).toMatchObject({ outputs: [{ data: Float32Array.of(7) }] });
});

test("an answer that is far longer than it should be once it is decompressed is no answer", async () => {
  await using world = await worldOf();
  const { server, client } = world;
  const long = gzipSync(Buffer.alloc(65 * 2 ** 20), { level: 1 });
  server.misbehave = () => ({ text: long, encoding: "gzip" });
  const message = expect.stringContaining("the answer has more than 64 MiB") as string;
  expect(await ask(client, Float32Array.of(1), true)).toMatchObject({ kind: "failed", message });
});
