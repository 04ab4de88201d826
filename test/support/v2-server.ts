import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { InferenceSession, Tensor } from "onnxruntime-node";
import { projectFolder } from "./cli.js";
import { decodeTensor, encodeTensor, onnxTypes, type Values } from "./v2-tensors.js";

export interface V2Tensor {
  readonly name: string;
  readonly datatype: string;
  readonly shape: readonly number[];
  readonly values: Values;
}

export interface V2Model {
  readonly inputs: readonly { name: string; datatype: string; shape: readonly number[] }[];
  readonly outputs: readonly { name: string; datatype: string; shape: readonly number[] }[];
  predict(inputs: readonly V2Tensor[], wanted: readonly string[]): Promise<readonly V2Tensor[]>;
}

export type Misbehaviour =
  | {
      readonly status: number;
      readonly headers?: Readonly<Record<string, string>>;
      readonly said?: string;
      readonly body?: object;
    }
  /** The connection is reset before the answer, or in the middle of its body. */
  | { readonly reset: "before" | "in the body" }
  | { readonly silent: true }
  | { readonly text: string | Uint8Array; readonly encoding?: string }
  | { readonly outputs: (outputs: readonly V2Tensor[]) => readonly V2Tensor[] }
  | { readonly delayMs: number }
  | { readonly after: Promise<unknown> };

export interface V2Request {
  /** From 1. */
  readonly number: number;
  readonly path: string;
  readonly headers: IncomingMessage["headers"];
  readonly inputs: readonly V2Tensor[];
  readonly rows: number;
}

/** A server of the Open Inference Protocol whose answers a test decides on. */
export interface V2Server extends AsyncDisposable {
  readonly url: string;
  /** "GET /v2/models/m", in the order they came. */
  readonly paths: string[];
  readonly mostInFlight: number;
  /** Versions in the metadata; the last one answers. A test may change them. */
  versions: readonly string[];
  isReady: boolean;
  misbehave: ((request: V2Request) => Misbehaviour | undefined) | undefined;
}

export interface V2Options {
  readonly name?: string;
  readonly isBinary?: boolean;
  readonly versions?: readonly string[];
  /** Rows of a request, at most, as Triton's model configuration has it. */
  readonly maxBatchSize?: number;
  /** Whether the server names versions in its answers only. */
  readonly hidesVersions?: boolean;
  /** Whether the server answers 501 to URLs that name a version, as KServe does. */
  readonly lacksVersions?: boolean;
  /** Whether the server tells how long requests take, as Triton does: 2 ms in the queue, 5 ms in the model, always two at once. */
  readonly hasStatistics?: boolean;
}

/** The response of a server of models: what it is to say, or the work that says it. */
type Answer = (
  path: string,
  served: V2Server,
) => readonly [status: number, body: object] | ((request: IncomingMessage, response: ServerResponse) => Promise<void>);

/** Listens as a server of models does; work that is answered later counts as in flight. */
export async function listenForModel(versions: readonly string[] = ["1"], answer: Answer): Promise<V2Server> {
  const paths: string[] = [];
  let [inFlight, mostInFlight] = [0, 0];
  const server = createServer((request, response) => {
    const path = (request.url ?? "").replace(/^\/base/, "");
    paths.push(`${request.method} ${path}`);
    const answered = answer(path, served);
    if (typeof answered !== "function") {
      send(response, ...answered);
      return;
    }
    inFlight += 1;
    mostInFlight = Math.max(mostInFlight, inFlight);
    response.once("close", () => (inFlight -= 1));
    answered(request, response).catch((error: unknown) => send(response, 500, { error: String(error) }));
  });
  await new Promise<void>((resolve) => {
    server.listen(0, "127.0.0.1", resolve);
  });
  const served: V2Server = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    paths,
    get mostInFlight() {
      return mostInFlight;
    },
    versions,
    isReady: true,
    misbehave: undefined,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => {
        server.close(resolve);
      });
    },
  };
  return served;
}

export async function serveV2(model: V2Model, options: V2Options = {}): Promise<V2Server> {
  const { name = "m", isBinary = true, maxBatchSize, hidesVersions = false, lacksVersions = false } = options;
  const { hasStatistics = false } = options;
  let inferences = 0;
  const infer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    inferences += 1;
    const { inputs, wanted, id } = readRequest(request, await bodyOf(request));
    const { url: path = "", headers } = request;
    const found = served.misbehave?.({ number: inferences, path, headers, inputs, rows: inputs[0]?.shape[0] ?? 0 });
    if (found !== undefined && "status" in found) {
      response.writeHead(found.status, found.headers).end(JSON.stringify({ error: found.said ?? "no" }));
    } else if (found !== undefined && "reset" in found && found.reset === "before") {
      request.socket.resetAndDestroy();
    } else if (found !== undefined && "text" in found) {
      response.writeHead(200, found.encoding === undefined ? {} : { "content-encoding": found.encoding });
      response.end(found.text);
    } else if (found === undefined || !("silent" in found)) {
      await (found !== undefined && "after" in found
        ? found.after
        : sleep(found !== undefined && "delayMs" in found ? found.delayMs : 0));
      const computed = await model.predict(inputs, wanted);
      const outputs = found !== undefined && "outputs" in found ? found.outputs(computed) : computed;
      const version = served.versions.at(-1);
      const isCut = found !== undefined && "reset" in found;
      sendAnswer(response, { id, name, version, outputs, isBinary, isCut });
    }
  };
  const metadata = (): object => ({
    name,
    versions: hidesVersions ? [] : served.versions,
    platform: "test",
    inputs: model.inputs,
    outputs: model.outputs,
  });
  const served = await listenForModel(options.versions, (path, { isReady, versions }) => {
    const [, version] = /\/versions\/([^/]+)/.exec(path) ?? [];
    const rest = path.replace(/\/versions\/[^/]+/, "");
    const ofModel = rest.startsWith(`/v2/models/${name}`) ? rest.slice(`/v2/models/${name}`.length) : undefined;
    if (path === "/v2") {
      const extensions = [
        ...(isBinary ? ["binary_tensor_data"] : []),
        ...(maxBatchSize ? ["model_configuration"] : []),
      ];
      return [200, { name: "test", version: "1", extensions }];
    }
    if (path === "/v2/health/ready" || ofModel === "/ready") {
      return [isReady ? 200 : 400, {}];
    }
    if (version !== undefined && lacksVersions) {
      return [501, { error: "Model versioning is not supported" }];
    }
    if (ofModel === undefined || (version !== undefined && !versions.includes(version))) {
      return [404, { error: `Request for unknown model: '${path}' is not found` }];
    }
    if (ofModel === "/infer") {
      return infer;
    }
    if (ofModel === "/stats") {
      return [hasStatistics ? 200 : 404, { model_stats: [statisticsOf(name, inferences)] }];
    }
    return [200, ofModel === "/config" ? { max_batch_size: maxBatchSize ?? 0 } : metadata()];
  });
  return served;
}

function send(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
}

/** What Triton's extension `statistics` says of a model after so many requests. */
function statisticsOf(name: string, requests: number): object {
  const all = (ms: number): object => ({ count: requests, ns: requests * ms * 1e6 });
  const times = { queue: all(2), compute_input: all(1), compute_infer: all(3), compute_output: all(1) };
  const inference_stats = { success: all(7), fail: { count: 0, ns: 0 }, ...times };
  return { name, version: "1", inference_count: requests, execution_count: requests / 2, inference_stats };
}

export async function bodyOf(request: IncomingMessage): Promise<Buffer> {
  const pieces: Buffer[] = [];
  for await (const piece of request) {
    pieces.push(piece as Buffer);
  }
  return Buffer.concat(pieces);
}

interface SentTensor {
  readonly name: string;
  readonly datatype: string;
  readonly shape: readonly number[];
  readonly data?: readonly unknown[];
  readonly parameters?: { readonly binary_data_size?: number };
}

const jsonLength = "inference-header-content-length";

function readRequest(
  { headers }: IncomingMessage,
  body: Buffer,
): { readonly id: string; readonly inputs: V2Tensor[]; readonly wanted: string[] } {
  let at = Number(headers[jsonLength] ?? body.length);
  const sent = JSON.parse(body.toString("utf8", 0, at)) as {
    readonly id: string;
    readonly inputs: readonly SentTensor[];
    readonly outputs: readonly { readonly name: string }[];
  };
  const inputs = sent.inputs.map(({ name, datatype, shape, data, parameters }) => {
    const size = parameters?.binary_data_size ?? 0;
    const values = decodeTensor(datatype, data ?? body.subarray(at, at + size));
    at += size;
    return { name, datatype, shape, values };
  });
  if (at !== body.length) {
    throw new Error(`the body has ${body.length} bytes, and its tensors end at ${at}`);
  }
  return { id: sent.id, inputs, wanted: sent.outputs.map(({ name }) => name) };
}

interface SentAnswer {
  readonly id: string;
  readonly name: string;
  readonly version: string | undefined;
  readonly outputs: readonly V2Tensor[];
  readonly isBinary: boolean;
  readonly isCut: boolean;
}

function sendAnswer(response: ServerResponse, { id, name, version, outputs, isBinary, isCut }: SentAnswer): void {
  const encoded = outputs.map((tensor) => encodeTensor(tensor.datatype, tensor.values, isBinary));
  const described = outputs.map(({ name: output, datatype, shape }, index) => {
    const values = encoded[index];
    return Buffer.isBuffer(values)
      ? { name: output, datatype, shape, parameters: { binary_data_size: values.length } }
      : { name: output, datatype, shape, data: "here" };
  });
  // Values are texts already, since JSON.stringify takes no bigint.
  let json = JSON.stringify({ id, model_name: name, model_version: version ?? null, outputs: described });
  for (const values of encoded) {
    json = typeof values === "string" ? json.replace('"here"', () => values) : json;
  }
  const bytes = Buffer.from(json);
  const body = Buffer.concat([bytes, ...encoded.filter((values) => Buffer.isBuffer(values))]);
  response.writeHead(200, { "content-length": body.length, ...(isBinary ? { [jsonLength]: bytes.length } : {}) });
  if (isCut) {
    response.write(body.subarray(0, body.length - 1), () => response.socket?.resetAndDestroy());
  } else {
    response.end(body);
  }
}

function describe(all: InferenceSession["inputMetadata"]): V2Model["inputs"] {
  return all.flatMap((one) => {
    const datatype = one.isTensor ? Object.keys(onnxTypes).find((key) => onnxTypes[key] === one.type) : undefined;
    return one.isTensor && datatype !== undefined
      ? [{ name: one.name, datatype, shape: one.shape.map((size) => (typeof size === "number" ? size : -1)) }]
      : [];
  });
}

/** A model of fixtures/models in ONNX Runtime. @param file its name */
export async function onnxModel(file: string): Promise<V2Model & AsyncDisposable> {
  const session = await InferenceSession.create(join(projectFolder, "fixtures/models", file), {
    intraOpNumThreads: 1,
    logSeverityLevel: 4,
  });
  const outputs = describe(session.outputMetadata);
  return {
    inputs: describe(session.inputMetadata),
    outputs,
    async predict(inputs, wanted) {
      const feeds = inputs.map(({ name, datatype, shape, values }) => [
        name,
        new Tensor(onnxTypes[datatype] as "float32", values as Float32Array, shape),
      ]);
      const results = await session.run(Object.fromEntries(feeds), [...wanted]);
      return wanted.map((name) => {
        const { dims, data, type } = results[name] as Tensor;
        const datatype = Object.keys(onnxTypes).find((key) => onnxTypes[key] === type) ?? "";
        return { name, datatype, shape: dims, values: data };
      });
    },
    [Symbol.asyncDispose]: () => session.release(),
  };
}
