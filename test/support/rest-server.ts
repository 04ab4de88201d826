import type { IncomingMessage, ServerResponse } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { bodyOf, listenForModel, type V2Model, type V2Server, type V2Tensor } from "./v2-server.js";
import { decodeTensor } from "./v2-tensors.js";

export interface RestOptions {
  /** tensorflow: versions and metadata; kserve: neither; json: predictions at `/invocations`, and nothing else. */
  readonly kind: "tensorflow" | "kserve" | "json";
  readonly versions?: readonly string[];
  /** Makes the answer from its rows: objects by output, or values if the model has one output. */
  readonly answer?: (rows: readonly unknown[], byOutput: Readonly<Record<string, unknown>>) => unknown;
  /** The last body that was received is kept here, and its text. */
  readonly seen?: { body?: unknown; text?: string };
}

type Json = Readonly<Record<string, unknown>>;

/** Serves a model by TensorFlow Serving's REST API, KServe's V1 protocol, or JSON of its own. */
export async function serveRest(model: V2Model, options: RestOptions): Promise<V2Server> {
  const { kind, answer = (rows) => ({ predictions: rows }), seen = {} } = options;
  let predictions = 0;
  const predict = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    predictions += 1;
    const sent = (await bodyOf(request)).toString("utf8");
    const body = JSON.parse(sent) as Json;
    [seen.text, seen.body] = [sent, body];
    const inputs = inputsIn(body, model);
    const { url: path = "", headers } = request;
    const rows = inputs[0]?.shape[0] ?? 0;
    const found = served.misbehave?.({ number: predictions, path, headers, inputs, rows });
    if (found !== undefined && "status" in found) {
      response.writeHead(found.status, found.headers).end(JSON.stringify(found.body ?? { error: found.said ?? "no" }));
    } else if (found !== undefined && "reset" in found && found.reset === "before") {
      request.socket.resetAndDestroy();
    } else if (found !== undefined && "text" in found) {
      response.end(found.text);
    } else if (found === undefined || !("silent" in found)) {
      await sleep(found !== undefined && "delayMs" in found ? found.delayMs : 0);
      const computed = await model.predict(
        inputs,
        model.outputs.map(({ name }) => name),
      );
      const outputs = found !== undefined && "outputs" in found ? found.outputs(computed) : computed;
      const byOutput = Object.fromEntries(outputs.map((tensor) => [tensor.name, rowsOf(tensor)]));
      const names = Object.keys(byOutput);
      const all = Array.from({ length: outputs[0]?.shape[0] ?? 0 }, (_, row) =>
        names.length === 1
          ? byOutput[names[0] ?? ""]?.[row]
          : Object.fromEntries(names.map((name) => [name, byOutput[name]?.[row]])),
      );
      const text = JSON.stringify(answer(all, byOutput));
      if (found !== undefined && "reset" in found) {
        response.writeHead(200, { "content-length": text.length });
        response.write(text.slice(0, -1), () => response.socket?.resetAndDestroy());
      } else {
        response.end(text);
      }
    }
  };
  const served = await listenForModel(options.versions, (path, { isReady, versions }) => {
    const [, version] = /\/versions\/([^/:]+)/.exec(path) ?? [];
    const rest = path.replace(/\/versions\/[^/:]+/, "");
    const isGone = version !== undefined && (kind === "kserve" || !versions.includes(version));
    if (!isGone && (kind === "json" ? path.startsWith("/invocations") : rest === "/v1/models/m:predict")) {
      return predict;
    }
    if (kind === "tensorflow" && rest === "/v1/models/m/metadata" && !isGone) {
      return [200, metadataOf(model)];
    }
    if (kind !== "json" && path === "/v1/models/m") {
      const state = isReady ? "AVAILABLE" : "LOADING";
      const status = versions.map((one) => ({ version: one, state, status: { error_code: "OK" } }));
      return [200, kind === "kserve" ? { name: "m", ready: isReady } : { model_version_status: status }];
    }
    return [404, { error: `Servable not found for request: ${path}` }];
  });
  return served;
}

/** Reads the inputs of a request in any of the layouts. */
function inputsIn(body: Json, { inputs }: V2Model): V2Tensor[] {
  const byName = (body["inputs"] ?? body["features_by_name"]) as Json | undefined;
  const split = body["dataframe_split"] as { columns: string[]; data: unknown[][] } | undefined;
  const rows = (body["instances"] ?? body["dataframe_records"]) as readonly unknown[] | undefined;
  return inputs.map(({ name, datatype, shape }, index) => {
    const values =
      split?.data.map((row) => row[split.columns.indexOf(name)]) ??
      rows?.map((row) =>
        inputs.length === 1 && (typeof row !== "object" || Array.isArray(row)) ? row : (row as Json)[name],
      ) ??
      (Array.isArray(byName) ? (byName as unknown[]) : ((byName?.[name] ?? Object.values(body)[index]) as unknown[]));
    const flat = values.flat();
    const width = flat.length / values.length;
    const sent = shape.length < 2 ? [values.length] : [values.length, width];
    return { name, datatype, shape: sent, values: decodeTensor(datatype, flat) };
  });
}

/** The values of each row: a list if the output has two dimensions. */
function rowsOf({ values, shape }: V2Tensor): unknown[] {
  const all = [...values].map((value) => (typeof value === "bigint" ? Number(value) : value));
  const [rows = 0, width = 1] = shape;
  return shape.length < 2 ? all : Array.from({ length: rows }, (_, row) => all.slice(row * width, (row + 1) * width));
}

const types: Readonly<Record<string, string>> = {
  INT64: "DT_INT64",
  FP32: "DT_FLOAT",
  FP64: "DT_DOUBLE",
  BYTES: "DT_STRING",
};

function described(tensors: V2Model["inputs"]): object {
  return Object.fromEntries(
    tensors.map(({ name, datatype, shape }) => {
      const dim = shape.map((size) => ({ size: String(size), name: "" }));
      return [name, { dtype: types[datatype], tensor_shape: { dim, unknown_rank: false }, name: `${name}:0` }];
    }),
  );
}

function metadataOf({ inputs, outputs }: V2Model): object {
  const signature = { inputs: described(inputs), outputs: described(outputs), method_name: "predict" };
  return {
    model_spec: { name: "m", signature_name: "", version: "1" },
    metadata: { signature_def: { signature_def: { serving_default: signature } } },
  };
}
