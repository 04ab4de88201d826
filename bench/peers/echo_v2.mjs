// A server of the Open Inference Protocol that computes nothing: it answers zeros at once, or after a time with a bounded
// number of requests in work. It reads requests from sockets by itself, so that it takes little of the cores it shares.
//
// usage: echo_v2.mjs [DELAY_MS SLOTS MOST_ROWS]; it prints its URL. GET /stats: for each tenth of a second since the first
// request, how many were answered, and for how long the slots had worked on them (timers are late on a busy machine).
import { createServer } from "node:net";

const [delayMs = 0, slots = Number.POSITIVE_INFINITY, mostRows = 0] = process.argv.slice(2).map(Number);
const features = 32;
const zeros = Buffer.alloc(1 << 20);
const metadata = {
  name: "m",
  versions: ["1"],
  platform: "echo",
  inputs: [{ name: "input", datatype: "FP32", shape: [-1, features] }],
  outputs: [{ name: "score", datatype: "FP32", shape: [-1, 1] }],
};
const documents = {
  "/v2": { name: "echo", version: "1", extensions: ["binary_tensor_data", "model_configuration"] },
  "/v2/health/ready": {},
  "/v2/models/m": metadata,
  "/v2/models/m/versions/1": metadata,
  "/v2/models/m/versions/1/ready": {},
  "/v2/models/m/ready": {},
  "/v2/models/m/versions/1/config": { max_batch_size: mostRows },
  "/v2/models/m/config": { max_batch_size: mostRows },
};
const stats = { answered: [], workMs: [], mostInFlight: 0 };
let firstMs = 0;
let inFlight = 0;
const waiting = [];
const working = [];
let timer;

function arrived(socket, rows) {
  const nowMs = performance.now();
  firstMs ||= nowMs;
  inFlight += 1;
  stats.mostInFlight = Math.max(stats.mostInFlight, inFlight);
  const one = { socket, rows, begunMs: nowMs, dueMs: 0 };
  if (delayMs === 0) {
    answer(one, nowMs);
  } else if (working.length < slots) {
    begin(one, nowMs);
  } else {
    waiting.push(one);
  }
}

function begin(one, nowMs) {
  one.begunMs = nowMs;
  one.dueMs = nowMs + delayMs;
  working.push(one);
  timer ??= setTimeout(finishDue, delayMs);
}

function finishDue() {
  timer = undefined;
  const nowMs = performance.now();
  while (working.length > 0 && working[0].dueMs <= nowMs + 0.5) {
    answer(working.shift(), nowMs);
    if (waiting.length > 0) {
      begin(waiting.shift(), nowMs);
    }
  }
  if (working.length > 0) {
    timer ??= setTimeout(finishDue, Math.max(0, working[0].dueMs - nowMs));
  }
}

function answer({ socket, rows, begunMs }, nowMs) {
  inFlight -= 1;
  const tenth = Math.floor((nowMs - firstMs) / 100);
  stats.answered[tenth] = (stats.answered[tenth] ?? 0) + 1;
  stats.workMs[tenth] = (stats.workMs[tenth] ?? 0) + (nowMs - begunMs);
  const size = rows * 4;
  const json = `{"model_name":"m","model_version":"1","outputs":[{"name":"score","datatype":"FP32","shape":[${rows},1],"parameters":{"binary_data_size":${size}}}]}`;
  socket.cork();
  socket.write(
    `HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nInference-Header-Content-Length: ${json.length}\r\nContent-Length: ${json.length + size}\r\n\r\n${json}`,
  );
  socket.write(zeros.subarray(0, size));
  socket.uncork();
}

function send(socket, path) {
  const found = path === "/stats" ? stats : documents[path];
  const body = JSON.stringify(found ?? { error: `no ${path}` });
  socket.write(
    `HTTP/1.1 ${found === undefined ? "404 Not Found" : "200 OK"}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
  );
}

/** Reads requests of a connection, one after the other: heads as text, bodies by their length. */
function serve(socket) {
  socket.setNoDelay(true);
  socket.on("error", () => socket.destroy());
  let head = Buffer.alloc(0);
  let toCome = 0;
  let request;
  socket.on("data", (given) => {
    let piece = given;
    while (piece.length > 0) {
      if (request === undefined) {
        head = head.length === 0 ? piece : Buffer.concat([head, piece]);
        const end = head.indexOf("\r\n\r\n");
        if (end < 0) {
          return;
        }
        const text = head.latin1Slice(0, end);
        const length = Number(/\ncontent-length: *(\d+)/i.exec(text)?.[1] ?? 0);
        const jsonLength = Number(/\ninference-header-content-length: *(\d+)/i.exec(text)?.[1] ?? 0);
        request = { path: text.slice(text.indexOf(" ") + 1, text.indexOf(" HTTP")), jsonLength, json: "" };
        toCome = length;
        piece = head.subarray(end + 4);
        head = Buffer.alloc(0);
      }
      if (request.json.length < request.jsonLength) {
        request.json += piece.latin1Slice(0, request.jsonLength - request.json.length);
      }
      const taken = Math.min(toCome, piece.length);
      toCome -= taken;
      piece = piece.subarray(taken);
      if (toCome > 0) {
        return;
      }
      const { path, json } = request;
      request = undefined;
      if (path.endsWith("/infer")) {
        arrived(socket, Number(/"shape":\s*\[(\d+)/.exec(json)?.[1] ?? 0));
      } else {
        send(socket, path);
      }
    }
  });
}

const server = createServer(serve).listen(0, "127.0.0.1", () => {
  console.log(`http://127.0.0.1:${server.address().port}`);
});
