import { spawnSync } from "node:child_process";
import { type IncomingMessage, request } from "node:http";
import { request as httpsRequest } from "node:https";
import { connect } from "node:net";
import type { TLSSocket } from "node:tls";
import { once } from "node:events";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { expectEnd, runHere } from "../support/cli.js";
import { eighthsJob } from "../support/faulty.js";
import { scratch } from "../support/job.js";
import { lastJson } from "../support/nights.js";
import { type Served, startServing } from "../support/serve.js";
import { tell, until } from "../support/waiting.js";

/** A served job whose model gives back the number that it gets. */
async function served(serve: object = {}): Promise<Served> {
  const spec = await eighthsJob(100, { serve: { port: 0, ...serve } });
  await expectEnd(runHere(["run", spec]), 0);
  return await startServing(spec);
}

const one = { rows: [{ id: 7, x: 1.5 }] };

test("a server answers what v2 clients ask before they send a request", async () => {
  const server = await served();
  for (const path of ["/healthz", "/readyz", "/v2/health/live", "/v2/health/ready", "/v2/models/small/ready"]) {
    const { status, headers } = await server.get(path);
    expect([status, headers.get("keep-alive")], path).toEqual([200, "timeout=65"]);
  }
  expect(await (await server.get("/v2")).json()).toMatchObject({
    name: "infer-batch",
    extensions: ["binary_tensor_data"],
  });
  expect(await (await server.get("/v2/models/small")).json()).toMatchObject({
    name: "small",
    inputs: [{ name: "x", shape: [-1] }],
    outputs: [{ name: "score", shape: [-1] }],
  });
});

test("v2 answers JSON with JSON, and bytes with bytes where it is asked for them", async () => {
  const server = await served();
  const url = "/v2/models/small/infer";
  for (const datatype of ["FP64", "FP32", "FP16"]) {
    const inputs = [{ name: "x", datatype, shape: [2], data: [0.5, -3] }];
    const answer = await (await server.post(url, { id: "a", inputs })).json();
    const outputs = [{ name: "score", shape: [2], data: [0.5, -3] }];
    expect(answer).toMatchObject({ id: "a", model_name: "small", outputs });
  }

  const json = Buffer.from(
    JSON.stringify({
      inputs: [{ name: "x", datatype: "FP64", shape: [2, 1], parameters: { binary_data_size: 16 } }],
      outputs: [{ name: "score", parameters: { binary_data: true } }],
    }),
  );
  const values = new Uint8Array(Float64Array.of(0.5, -3).buffer);
  const response = await server.post(url, Buffer.concat([json, values]), {
    "inference-header-content-length": String(json.length),
  });
  const bytes = Buffer.from(await response.arrayBuffer());
  expect(response.status, bytes.toString()).toBe(200);
  const at = Number(response.headers.get("inference-header-content-length"));
  const head = JSON.parse(bytes.toString("utf8", 0, at)) as { outputs: { datatype: string }[] };
  const isDouble = head.outputs[0]?.datatype === "FP64";
  expect(
    isDouble
      ? [bytes.readDoubleLE(at), bytes.readDoubleLE(at + 8)]
      : [bytes.readFloatLE(at), bytes.readFloatLE(at + 4)],
  ).toEqual([0.5, -3]);
});

test("rows that cannot be scored are named, and other requests of their batch are answered", async () => {
  const server = await served({ batch: { rows: 64, wait: "50ms" } });
  const [bad, good] = await Promise.all([
    server.post("/predict", {
      rows: [
        { id: 1, x: 1 },
        { id: 2, x: null },
      ],
    }),
    server.post("/predict", one),
  ]);
  expect(good.status).toBe(200);
  expect(bad.status).toBe(422);
  expect(await bad.json()).toMatchObject({ rows: [{ row: 1, column: "x", reason: "null", value: null }] });
  const text = await (await server.get("/metrics")).text();
  expect(text).toContain('infer_batch_serve_predictions_total{batch_job="small",source="online"} 1\n');
  expect(text).toMatch(
    /infer_batch_serve_request_seconds_bucket\{batch_job="small",route="\/predict",le="\+Inf"\} 2\n/,
  );
});

test("more rows or bytes than the limits are answered 413", async () => {
  const server = await served({ max_rows: 3, max_bytes: 1000 });
  expect((await server.post("/predict", { rows: Array.from({ length: 4 }, () => ({ id: 1, x: 1 })) })).status).toBe(
    413,
  );
  expect((await server.post("/predict", { rows: [{ id: 1, x: 1, more: "x".repeat(1000) }] })).status).toBe(413);
  const inputs = [{ name: "x", datatype: "FP64", shape: [4], data: [1, 2, 3, 4] }];
  expect((await server.post("/v2/models/small/infer", { inputs })).status).toBe(413);
  // Whose length is not told.
  const chunked = { method: "POST", body: new Blob(["x".repeat(2000)]).stream(), duplex: "half" };
  expect((await fetch(`${server.url}/predict`, chunked as RequestInit)).status).toBe(413);
  expect((await server.post("/predict", one)).status).toBe(200);
});

test("a request whose deadline passes while it waits is answered 504, one that finds too many rows waiting 503", async () => {
  const server = await served({ batch: { rows: 100, wait: "5s" }, queue: 2 });
  const late = server.post("/predict", one, { "x-timeout-ms": "100" });
  expect((await late).status).toBe(504);
  const waiting = server.post("/predict", { rows: [...one.rows, ...one.rows] });
  await until(async () => /queue_rows\{batch_job="small"\} 2\n/.test(await (await server.get("/metrics")).text()));
  const refused = await server.post("/predict", one);
  expect([refused.status, refused.headers.get("retry-after")]).toEqual([503, "1"]);
  expect((await waiting).status).toBe(200);
});

test("SIGTERM answers the requests that came, and ends with 143", async () => {
  const server = await served({ batch: { rows: 100, wait: "6s" } }); // a job has 5 s to stop
  const waiting = server.post("/predict", one);
  await until(async () => /queue_rows\{batch_job="small"\} 1\n/.test(await (await server.get("/metrics")).text()));
  const asked = request(`${server.url}/predict`, { method: "POST" });
  asked.write('{"rows":');
  await until(async () => (await server.get("/metrics")).ok); // its first bytes have come
  await tell(server.child, "SIGTERM");
  await expect(server.get("/readyz")).rejects.toThrow();
  asked.end('[{"id":8,"x":2.5}]}');
  const [response] = (await once(asked, "response")) as [IncomingMessage];
  response.resume();
  expect([response.statusCode, response.headers.connection]).toEqual([200, "close"]);
  expect((await waiting).status).toBe(200);
  expect(await server.ended).toBe(143);
});

test("without a published run a server listens, is not ready, and serves the first one that is published, or made anew", async () => {
  const overrides = { serve: { port: 0, poll: "50ms", key: ["id"] } };
  const spec = await eighthsJob(10, overrides);
  const server = await startServing(spec, { says: /no run of small is published/ });
  for (const response of [
    await server.get("/readyz"),
    await server.get("/v2/models/small/ready"),
    await server.post("/predict", one),
  ]) {
    expect(response.status, response.url).toBe(503);
  }
  await expectEnd(runHere(["run", spec]), 0);
  await until(async () => (await server.get("/readyz")).status === 200, 50);
  expect(await server.predict([{ id: 7 }, { id: 17, x: 1.5 }])).toMatchObject([{ score: 0.875 }, { source: "online" }]);
  await rm(join(scratch.path, "out"), { recursive: true });
  await expectEnd(runHere(["run", await eighthsJob(20, overrides)]), 0); // which has the same id
  await until(async () => (await server.post("/predict", { rows: [{ id: 17 }] })).status === 200, 50);
});

test("the last run of some params is found behind many of others", async () => {
  const spec = await eighthsJob(2, {
    params: { ds: "${today}", region: "US" },
    output: { parquet: { path: "out/region=${region}/dt=${ds}" } },
  });
  const days = Array.from({ length: 80 }, (_, day) => new Date(Date.UTC(2026, 8, 1 + day)).toISOString().slice(0, 10));
  await expectEnd(runHere(["run", spec, "--param", "ds=2026-08-31", "--param", "region=EU"]), 0);
  await expectEnd(runHere(["backfill", spec, "--param", `ds=${days[0]}..${days.at(-1)}`]), 0);
  const server = await startServing(spec, { args: ["--param", "region=EU"], says: /serving run|no run of small/ });
  expect((await server.post("/predict", one)).status).toBe(200);
});

test("the run of the last hour is served, whichever was published last", async () => {
  const params = { ds: "${today}", hour: "${hour}" };
  const spec = await eighthsJob(2, { params, output: { parquet: { path: "out/dt=${ds}/hour=${hour}" } } });
  const ids: unknown[] = [];
  for (const hour of ["22", "03", "12", "07"]) {
    const args = ["run", spec, "--param", "ds=2026-11-20", "--param", `hour=${hour}`, "--json"];
    ids.push(lastJson(await expectEnd(runHere(args), 0))["run_id"]);
  }
  expect((await startServing(spec)).stderr()).toContain(`serving run ${String(ids[0])}\n`);
});

const noText = { toString: 1, valueOf: 1 };
const deep = `${"[".repeat(100_000)}${"]".repeat(100_000)}`;
const v2 = "/v2/models/small/infer";

test("hostile requests are answered 4xx, and the server goes on", async () => {
  const server = await served({ max_bytes: 1_000_000 });
  const predicting: readonly unknown[] = [
    "",
    "{",
    "nul",
    Buffer.from([0xff, 0xfe]),
    "[]",
    { rows: {} },
    { rows: [] },
    { rows: [[1]] },
    { rows: [null] },
    { rows: [{}] },
    { rows: [{ id: 1, y: 1 }] },
    '{"rows":[{"id":1,"x":1e999}]}',
    '{"rows":[{"id":99999999999999999999,"x":1}]}',
    { rows: [{ id: 1.5, x: 1 }] },
    { rows: [{ id: "1; DROP", x: 1 }] },
    { rows: [{ id: 1, x: "1" }] },
    { rows: [{ id: 1, x: [1] }] },
    { rows: [{ id: 1, x: noText }] },
    `{"rows":[{"id":1,"x":${deep}}]}`,
    '{"rows":[{"__proto__":{"x":1},"id":1}]}',
    `{"rows":[NaN,"${'\\"'.repeat(450_000)}`,
    `{"rows":${deep}}`,
    deep,
  ];
  for (const body of predicting) {
    const { status } = await server.post("/predict", body);
    expect([400, 422], JSON.stringify(body).slice(0, 60)).toContain(status);
  }
  const input = { name: "x", datatype: "FP64", shape: [1], data: [1] };
  const asking: readonly unknown[] = [
    "{",
    {},
    { inputs: [] },
    { inputs: [null] },
    { inputs: [{ ...input, name: "y" }] },
    { inputs: [{ ...input, datatype: "FP99" }] },
    { inputs: [{ ...input, datatype: noText }] },
    { inputs: [{ ...input, shape: [2], parameters: { binary_data_size: noText } }] },
    { inputs: [{ ...input, shape: [2] }] },
    { inputs: [{ ...input, shape: [-1] }] },
    { inputs: [{ ...input, shape: [0], data: [] }] },
    { inputs: [{ ...input, shape: [2 ** 52], data: [] }] },
    { inputs: [{ ...input, shape: "1" }] },
    { inputs: [{ ...input, shape: [1, 2], data: [1, 2] }] },
    { inputs: [{ ...input, data: [deep] }] },
    { inputs: [{ ...input, data: undefined, parameters: { binary_data_size: -8 } }] },
    { inputs: [{ ...input, data: undefined, parameters: { binary_data_size: 8e15 } }] },
    { inputs: [input], outputs: [{ name: "other" }] },
    { inputs: [input], outputs: [{ name: noText }] },
    { inputs: [input], outputs: Array.from({ length: 1000 }, () => ({ name: "score" })) },
  ];
  for (const body of asking) {
    const { status } = await server.post(v2, body);
    expect([400, 413, 422], JSON.stringify(body).slice(0, 90)).toContain(status);
  }
  for (const length of ["-1", "1e9", "abc", "9007199254740993", "1.5"]) {
    expect(
      (await server.post(v2, { inputs: [input] }, { "inference-header-content-length": length })).status,
      length,
    ).toBe(400);
  }
  expect((await server.post("/predict", one, { "content-encoding": "gzip" })).status).toBe(415);
  expect((await server.post("/predict", one, { "x-timeout-ms": "soon" })).status).toBe(400);
  expect((await server.get("/predict")).status).toBe(405);
  expect(await (await server.get("/../../etc/passwd")).json()).toEqual({ error: "there is no /etc/passwd" });
  expect((await server.get("/constructor")).status).toBe(404);
  expect((await server.post("/predict", one)).status).toBe(200);
});

test("a page under another name cannot read predictions from this machine", async () => {
  const server = await served();
  const asked = request(`${server.url}/predict`, { method: "POST", headers: { host: "evil.example" } }).end(
    JSON.stringify(one),
  );
  const [response] = (await once(asked, "response")) as [IncomingMessage];
  response.resume();
  expect(response.statusCode).toBe(403);
});

test("bodies that come slowly, or are cut off, hold nothing up", async () => {
  const server = await served();
  const { port } = new URL(server.url);
  const sockets = Array.from({ length: 50 }, () => connect(Number(port), "127.0.0.1"));
  for (const socket of sockets) {
    socket.on("error", () => undefined);
    socket.write("POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5000\r\n\r\n{");
  }
  expect((await server.post("/predict", one)).status).toBe(200);
  for (const socket of sockets) {
    socket.destroy();
  }
  expect((await server.post("/predict", one)).status).toBe(200);
  const counted = async (): Promise<string> => await (await server.get("/metrics")).text();
  await until(async () => (await counted()).includes('route="/predict",code="400"} 50\n'), 50);
  expect(await counted()).not.toContain('code="500"');
  expect(server.stderr()).not.toContain("answering a request");

  const late = request(`${server.url}/predict`, {
    method: "POST",
    headers: { "content-length": 99, "x-timeout-ms": 50 },
  });
  late.on("error", () => undefined).write("{");
  const [response] = (await once(late, "response")) as [IncomingMessage];
  expect([response.statusCode, response.headers.connection]).toEqual([408, "close"]);
});

const openssl = spawnSync("openssl", ["version"]).status === 0;

test.skipIf(!openssl)("a server with a certificate answers over TLS only, and takes the next one", async () => {
  const certify = (name: string): void => {
    const certificate = `req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=${name}`;
    const files = ["-keyout", join(scratch.path, "key.pem"), "-out", join(scratch.path, "cert.pem")];
    expect(spawnSync("openssl", [...certificate.split(" "), ...files]).status).toBe(0);
  };
  certify("localhost");
  const server = await served({ tls: { cert: "cert.pem", key: "key.pem" }, poll: "50ms" });
  const ask = async (): Promise<readonly unknown[]> => {
    const asked = httpsRequest(`${server.url}/readyz`, { rejectUnauthorized: false, agent: false }).end();
    const [response] = (await once(asked, "response")) as [IncomingMessage];
    response.resume();
    return [response.statusCode, (response.socket as TLSSocket).getPeerCertificate().subject.CN];
  };
  expect(server.url).toMatch(/^https:/);
  expect(await ask()).toEqual([200, "localhost"]);
  certify("renewed");
  await until(async () => (await ask().catch(() => []))[1] === "renewed", 50);
  await expect(fetch(`${server.url.replace("https", "http")}/readyz`)).rejects.toThrow();
});
