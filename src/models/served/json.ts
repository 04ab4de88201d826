import type { ServedFacts } from "../binding/model-facts.js";
import {
  isTensorType,
  type ModelSignature,
  type NamedTensor,
  type Tensor,
  type TensorSignature,
  type TensorType,
} from "../../columns/tensor.js";
import { BrokenTransfer } from "../../base/http/http.js";
import { fieldsOf } from "../../base/guards.js";
import { JobError } from "../../base/errors.js";
import {
  type Answer,
  type AnswerMessage,
  elementTexts,
  encodedRequest,
  type EncodedRequest,
  type Expected,
  type FindRequest,
  MalformedAnswer,
  parseAnswer,
  type Protocol,
  tensorOfJson,
  type UnfitRequest,
} from "./protocol.js";
import { ask, type Json, type ModelServer, modelUrl, untilReady } from "./server.js";

/** The body of a request as JSON; a text `{{NAME}}` in it stands for values of the batch. */
type RequestTemplate = Readonly<Record<string, unknown>>;

/** Where an answer has its predictions: names of keys and indices of lists; none: the answer is the predictions. */
type ResponsePath = readonly (string | number)[];

/** What the spec says of requests and answers. */
export interface JsonLayout {
  readonly request: RequestTemplate;
  readonly response: ResponsePath;
  /** undefined: the server is asked for it. */
  readonly signature: ModelSignature | undefined;
}

/**
 * Predictions by POST, in JSON that the spec describes.
 * @param name json: any server, which says nothing about its model, and takes POSTs at one path; v1: the REST API of
 * TensorFlow Serving, which KServe calls V1
 */
export function json(name: "json" | "v1", { request, response, signature }: JsonLayout): Protocol {
  const common: Pick<Protocol, "name" | "layout" | "encode" | "decode"> = {
    name,
    layout: { request, response },
    encode: ({ inputs }) => templateRequest(request, inputs),
    decode: (message, expected) => readPredictions(message, expected, response),
  };
  if (name === "v1") {
    return {
      ...common,
      find: (server, asked) => findV1(server, asked, signature),
      inferUrl: (server, { version, isVersionInPath }) =>
        modelUrl(server, "v1", isVersionInPath ? version : undefined, ":predict"),
      readyUrl: (server) => modelUrl(server, "v1", undefined),
    };
  }
  const facts = { version: undefined, isVersionInPath: false, isBinary: false, mostRows: undefined };
  return {
    ...common,
    find: () => Promise.resolve({ signature: signature ?? { inputs: [], outputs: [] }, ...facts }),
    inferUrl: ({ base }) => base,
    readyUrl: () => undefined,
  };
}

/** An input of a batch as JSON: the text of each row's value, or of its list of values. */
interface RowTexts {
  readonly name: string;
  readonly rows: readonly string[];
}

/**
 * Fills a template. `{{instances}}`: a list with each row, which is a value for a model with one input, otherwise an
 * object by input. `{{records}}`: each row is an object. `{{inputs}}`: the values of the only input, otherwise an object
 * with a list for each input. `{{dataframe_split}}`: the rows as lists, with the names of the inputs as columns. The name
 * of an input: a list with its value for each row.
 */
function templateRequest(template: RequestTemplate, inputs: readonly NamedTensor[]): EncodedRequest | UnfitRequest {
  const all: RowTexts[] = [];
  for (const input of inputs) {
    const rows = rowTexts(input);
    if (rows === undefined) {
      return { unfit: input.name };
    }
    all.push({ name: input.name, rows });
  }
  const body = JSON.stringify(template).replaceAll(placeholder, (found, name: string) => filled(name, all) ?? found);
  return encodedRequest([Buffer.from(body)], { "content-type": "application/json" });
}

const placeholder = /"\{\{([^{}"\\]+)\}\}"/g;

function filled(name: string, inputs: readonly RowTexts[]): string | undefined {
  const [first, second] = inputs;
  const only = first !== undefined && second === undefined ? list(first.rows) : undefined;
  switch (name) {
    case "instances":
      return only ?? records(inputs);
    case "records":
      return records(inputs);
    case "inputs":
      return only ?? columns(inputs);
    case "dataframe_split": {
      const names = JSON.stringify(inputs.map((input) => input.name));
      return `{"columns":${names},"data":${list(acrossInputs(inputs, (values) => list(values)))}}`;
    }
    default: {
      const input = inputs.find((one) => one.name === name);
      return input === undefined ? undefined : list(input.rows);
    }
  }
}

function list(values: readonly string[]): string {
  return `[${values.join(",")}]`;
}

function columns(inputs: readonly RowTexts[]): string {
  return `{${inputs.map(({ name, rows }) => `${JSON.stringify(name)}:${list(rows)}`).join(",")}}`;
}

function records(inputs: readonly RowTexts[]): string {
  const names = inputs.map(({ name }) => JSON.stringify(name));
  return list(
    acrossInputs(inputs, (values) => `{${values.map((value, index) => `${names[index]}:${value}`).join(",")}}`),
  );
}

function acrossInputs(inputs: readonly RowTexts[], join: (values: readonly string[]) => string): string[] {
  const count = inputs[0]?.rows.length ?? 0;
  return Array.from({ length: count }, (_, row) => join(inputs.map(({ rows }) => rows[row] ?? "null")));
}

/** The rows of a tensor; undefined if it has NaN or an infinity. */
function rowTexts(tensor: NamedTensor): string[] | undefined {
  const elements = elementTexts(tensor);
  const [rows = 0, width = 1] = tensor.dims;
  if (elements === undefined || tensor.dims.length < 2) {
    return elements;
  }
  return Array.from({ length: rows }, (_, row) => list(elements.slice(row * width, (row + 1) * width)));
}

/**
 * A list with each row's prediction, which is an object by output for a model with several outputs; or an object with
 * such a list for each output.
 */
function readPredictions({ body }: AnswerMessage, { outputs }: Expected, path: ResponsePath): Answer {
  const found = valueAt(parseAnswer(body), path);
  return { version: undefined, outputs: outputs.map((output) => tensorOf(valuesOf(output, found, outputs), output)) };
}

/** A path as messages write it: "data.scores[0]". */
function pathText(path: ResponsePath): string {
  return path
    .map((part, index) => (typeof part === "number" ? `[${part}]` : `${index === 0 ? "" : "."}${part}`))
    .join("");
}

function valueAt(answer: unknown, path: ResponsePath): unknown {
  let value = answer;
  for (const [index, part] of path.entries()) {
    value = typeof part === "number" ? (Array.isArray(value) ? value[part] : undefined) : valueOf(value, part);
    if (value === undefined) {
      throw new MalformedAnswer(`it has no \`${pathText(path.slice(0, index + 1))}\``);
    }
  }
  return value;
}

function isPlainObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The value of an object's key. An output may be called `constructor`, which every object in JavaScript has. */
function valueOf(holder: unknown, key: string): unknown {
  return isPlainObject(holder) && Object.hasOwn(holder, key) ? holder[key] : undefined;
}

function valuesOf({ name }: TensorSignature, found: unknown, outputs: Expected["outputs"]): readonly unknown[] {
  const isByOutput = isPlainObject(found);
  const values = isByOutput ? valueOf(found, name) : found;
  if (!Array.isArray(values)) {
    throw new MalformedAnswer(
      isByOutput && values === undefined ? `output \`${name}\` is missing` : "the predictions are no list",
    );
  }
  const rows: readonly unknown[] = values;
  if (isByOutput || !isPlainObject(rows[0])) {
    if (!isByOutput && outputs.length > 1) {
      throw new MalformedAnswer(`a row's prediction is no object with ${outputs.map((one) => one.name).join(", ")}`);
    }
    return rows;
  }
  return rows.map((row) => {
    const value = valueOf(row, name);
    if (value === undefined) {
      throw new MalformedAnswer(`output \`${name}\` is missing in the prediction of a row`);
    }
    return value;
  });
}

function tensorOf(rows: readonly unknown[], { name, dtype, shape }: TensorSignature): Tensor {
  if (!isTensorType(dtype)) {
    throw new MalformedAnswer(`output \`${name}\` is ${dtype ?? "no tensor"}, which JSON cannot tell`);
  }
  const declared = shape.length < 2 ? 1 : shape[1];
  const width = declared ?? widthOf(rows[0]);
  const wrong = rows.findIndex((row) => widthOf(row) !== width);
  if (wrong >= 0) {
    throw new MalformedAnswer(`output \`${name}\` has ${widthOf(rows[wrong])} values in a row, and ${width} are due`);
  }
  const dims = shape.length < 2 ? [rows.length] : [rows.length, width];
  const tensor = tensorOfJson({ dtype, dims }, rows);
  if (tensor === undefined) {
    throw new MalformedAnswer(`output \`${name}\` has lists within the lists of its rows`);
  }
  return tensor;
}

function widthOf(row: unknown): number {
  return Array.isArray(row) ? row.length : 1;
}

/** @param signature for servers without metadata */
async function findV1(
  server: ModelServer,
  { doing, wanted }: FindRequest,
  signature: ModelSignature | undefined,
): Promise<ServedFacts> {
  const version = await untilReady(server, doing, () => readyVersion(server, { doing, wanted }));
  const asked = await ask(server, doing, modelUrl(server, "v1", version, "/metadata"));
  const described = "json" in asked ? signatureOf(asked.json, doing) : undefined;
  const known = described ?? signature;
  if (known === undefined) {
    throw new JobError("MODEL_INVALID", `${doing}: the server has no metadata of the model`, {
      hint: 'name its inputs and outputs with their types in model.server.signature, such as inputs: { features: "float32[10]" }, outputs: { score: float32 }',
    });
  }
  const isVersionInPath = version !== undefined;
  return { signature: known, version, isVersionInPath, isBinary: false, mostRows: undefined };
}

/** undefined: a server without versions (KServe). @throws BrokenTransfer if none is ready yet */
async function readyVersion(server: ModelServer, { doing, wanted }: FindRequest): Promise<string | undefined> {
  const asked = await ask(server, doing, modelUrl(server, "v1", undefined));
  if ("refused" in asked) {
    throw asked.error;
  }
  const { ready, model_version_status: listed } = asked.json;
  if (!Array.isArray(listed)) {
    if (ready === false || ready === "False") {
      throw new BrokenTransfer("the model is not ready");
    }
    return undefined;
  }
  const versions = listed.map(versionStatus).filter(({ version }) => wanted === undefined || version === wanted);
  const available = versions.filter(({ state }) => state === "AVAILABLE");
  const latest = available.toSorted((one, other) => Number(one.version) - Number(other.version)).at(-1);
  if (latest !== undefined) {
    return latest.version;
  }
  if (versions.some(({ state }) => ["START", "LOADING", "UNKNOWN"].includes(state))) {
    throw new BrokenTransfer("the model is not ready");
  }
  const states = listed.map(versionStatus).map(({ version, state, said }) => `${version} is ${state}${said}`);
  throw new JobError("FILE_MISSING", `${doing}: no such version is available (${states.join("; ") || "none"})`, {
    hint: "check model.server.version, and the server's log",
  });
}

function versionStatus(given: unknown): { readonly version: string; readonly state: string; readonly said: string } {
  const { version, state, status } = fieldsOf(given);
  const { error_message: message } = fieldsOf(status);
  const said = typeof message === "string" && message !== "" ? ` (${message.slice(0, 200)})` : "";
  return { version: String(version), state: String(state), said };
}

/** TensorFlow's names of data types, where they are not ours in capitals ("DT_INT8"). */
const types: ReadonlyMap<string, TensorType> = new Map([
  ["DT_HALF", "float16"],
  ["DT_FLOAT", "float32"],
  ["DT_DOUBLE", "float64"],
]);

/** The signature that requests use if they name none. */
const standard = "serving_default";

/** undefined: the answer has none. @throws JobError MODEL_INVALID if the model has signatures, but not `standard` */
function signatureOf({ metadata }: Json, doing: string): ModelSignature | undefined {
  const { signature_def: all } = fieldsOf(metadata);
  const { signature_def: byName } = fieldsOf(all);
  if (typeof byName !== "object" || byName === null) {
    return undefined;
  }
  const found = (byName as Json)[standard];
  if (found === undefined) {
    const names = Object.keys(byName).join(", ");
    throw new JobError("MODEL_INVALID", `${doing}: it has the signatures ${names}, and not ${standard}`, {
      hint: `save the model with a signature named ${standard}`,
    });
  }
  const { inputs, outputs } = fieldsOf(found);
  return { inputs: tensorsIn(inputs), outputs: tensorsIn(outputs) };
}

function tensorsIn(given: unknown): TensorSignature[] {
  return Object.entries(fieldsOf(given)).map(([name, described]) => {
    const { dtype, tensor_shape: shape } = fieldsOf(described);
    return {
      name,
      dtype: types.get(String(dtype)) ?? String(dtype).replace(/^DT_/, "").toLowerCase(),
      shape: sizesOf(shape),
    };
  });
}

/** The sizes of a shape; of an unknown one, rows of any width. */
function sizesOf(shape: unknown): (number | null)[] {
  const { dim, unknown_rank: isUnknown } = fieldsOf(shape);
  if (isUnknown === true) {
    return [null, null];
  }
  const sizes: readonly unknown[] = Array.isArray(dim) ? dim : [];
  return sizes.map((one) => {
    const size = Number(fieldsOf(one)["size"]);
    return Number.isSafeInteger(size) && size >= 0 ? size : null;
  });
}
