// The client of infer-batch alone: the same batch is sent again and again, by as many requests at once as it finds.
//
// usage: client_v2.mjs URL BATCH_SIZE REQUESTS
import { findServedModel, openServedEngine } from "../../dist/models/served/engine.js";
import { v2 } from "../../dist/models/served/v2.js";
import { placeAt } from "../../dist/models/served/server.js";
import { openConnectionPool } from "../../dist/base/http/connections.js";

const [url, ...numbers] = process.argv.slice(2);
const [batchSize, requests] = numbers.map(Number);
const features = 32;
const most = 64;
const server = {
  ...placeAt(url),
  model: "m",
  headers: {},
  timeoutMs: 60_000,
  most,
  retry: {
    maxSeconds: 10,
    nowMs: () => performance.now(),
    random: Math.random,
    sleep: (ms) => new Promise((resolve) => setTimeout(resolve, ms)),
    warn: console.error,
    warnedMs: new Map(),
  },
  signal: new AbortController().signal,
  findProxy: () => undefined,
  connections: openConnectionPool(60_000),
  tls: {},
};
const model = await findServedModel(v2, [server], { version: undefined, isPlanned: false });
const engine = openServedEngine(v2, [server], model);
let [left, rows] = [requests, 0];
const loop = async () => {
  const data = new Float32Array(batchSize * features).fill(0.5);
  let inputs = [{ name: "input", dtype: "float32", dims: [batchSize, features], data }];
  while (left > 0) {
    left -= 1;
    const response = await engine.run({ inputs, outputs: ["score"] });
    if (response.kind !== "done") {
      throw new Error(response.message);
    }
    inputs = response.inputs;
    rows += response.outputs[0].data.length;
  }
};
await Promise.all(Array.from({ length: 8 }, loop));
server.connections[Symbol.dispose]();
console.log(JSON.stringify({ rows, mostInFlight: engine.traffic.inFlight }));
