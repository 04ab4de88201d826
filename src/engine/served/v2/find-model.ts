import type { ServedFacts } from "../../../binding/served-model.js";
import type { ModelSignature, TensorSignature } from "../../../columnar/tensor.js";
import { BrokenTransfer } from "../../../net/request.js";
import { readText } from "../../../net/http.js";
import { JobError } from "../../../util/errors.js";
import { ask, type Asked, type Json, listIn, untilReady } from "../ask.js";
import type { FindRequest } from "../protocol.js";
import { type ModelServer, urlAt } from "../server.js";
import { typeOfDatatype } from "./datatypes.js";

/** The URL of a model, or of one of its versions. */
export function modelUrl(server: ModelServer, version: string | undefined, more = ""): string {
  const ofVersion = version === undefined ? "" : `/versions/${encodeURIComponent(version)}`;
  return urlAt(server, `/v2/models/${encodeURIComponent(server.model)}${ofVersion}${more}`);
}

/** Asks a server of the Open Inference Protocol for its model. */
export async function findModel(server: ModelServer, { doing, wanted }: FindRequest): Promise<ServedFacts> {
  const about = await ask(server, doing, urlAt(server, "/v2"));
  const extensions = new Set("json" in about ? listIn(about.json, "extensions") : []);
  const found = await metadataOf(server, { doing, wanted });
  const signature = signatureOf(found.json, doing);
  const version = found.version ?? latest(listIn(found.json, "versions"), doing);
  await requireReady(server, { doing, url: modelUrl(server, found.version, "/ready") });
  const isBinary = extensions.has("binary_tensor_data");
  const mostRows = extensions.has("model_configuration") ? await limitOf(server, { doing, version }) : undefined;
  return { signature, version, isVersionInPath: version !== undefined, isBinary, mostRows };
}

interface Metadata {
  readonly json: Json;
  /** The version that the server was asked for; undefined: it was asked for none. */
  readonly version: string | undefined;
}

/** Reads the metadata of the wanted version. A server that does not know versions (501) tells what it has. */
async function metadataOf(
  server: ModelServer,
  { doing, wanted }: { readonly doing: string; readonly wanted: string | undefined },
): Promise<Metadata> {
  const asked = await askWhenReady(server, doing, modelUrl(server, wanted));
  if ("json" in asked) {
    return { json: asked.json, version: wanted };
  }
  if (wanted === undefined || asked.refused.status !== 501) {
    throw asked.error;
  }
  return await metadataOf(server, { doing, wanted: undefined });
}

/** Asks again while the server is starting: it does not know its models then. */
async function askWhenReady(server: ModelServer, doing: string, url: string): Promise<Asked> {
  return await untilReady(server, doing, async () => {
    const asked = await ask(server, doing, url);
    if ("refused" in asked && asked.refused.status !== 501) {
      await expectReady(server, doing, urlAt(server, "/v2/health/ready"));
    }
    return asked;
  });
}

/** Waits until a model is ready. */
async function requireReady(
  server: ModelServer,
  { doing, url }: { readonly doing: string; readonly url: string },
): Promise<void> {
  await untilReady(server, doing, () => expectReady(server, doing, url));
}

/** @throws BrokenTransfer if the server says that something is not ready */
async function expectReady(server: ModelServer, doing: string, url: string): Promise<void> {
  const asked = await ask(server, doing, url, readText);
  // A server that does not have the URL does not say.
  if ("refused" in asked && asked.refused.status === 400) {
    throw new BrokenTransfer(`it is not ready (${asked.refused.status})`);
  }
}

/** The version that a server uses if it is asked for none: the one with the highest number. */
function latest(versions: readonly string[], doing: string): string | undefined {
  if (versions.length > 1 && !versions.every((version) => /^\d+$/.test(version))) {
    throw new JobError("MODEL_INVALID", `${doing}: the server has versions ${versions.join(", ")}`, {
      hint: "name one in model.server.version",
    });
  }
  return versions.toSorted((one, other) => Number(one) - Number(other)).at(-1);
}

/** @throws JobError MODEL_INVALID if the metadata names no inputs and outputs */
function signatureOf(json: Json, doing: string): ModelSignature {
  const read = (key: "inputs" | "outputs"): TensorSignature[] => {
    const tensors = json[key];
    if (!Array.isArray(tensors) || tensors.length === 0) {
      throw new JobError("MODEL_INVALID", `${doing}: its metadata names no ${key}`, {
        hint: "have the server declare the model's inputs and outputs with types and shapes: GET /v2/models/NAME shows them",
      });
    }
    return tensors.map(tensorSignature);
  };
  return { inputs: read("inputs"), outputs: read("outputs") };
}

function tensorSignature(given: unknown): TensorSignature {
  const { name, datatype, shape } = Object(given) as Json;
  const sizes: readonly unknown[] = Array.isArray(shape) ? shape : [];
  return {
    name: String(name),
    dtype: typeOfDatatype(String(datatype)) ?? String(datatype).toLowerCase(),
    shape: sizes.map((size) => (Number.isSafeInteger(size) && Number(size) >= 0 ? Number(size) : null)),
  };
}

/** The rows that Triton takes in a request; undefined: it names no limit. */
async function limitOf(
  server: ModelServer,
  { doing, version }: { readonly doing: string; readonly version: string | undefined },
): Promise<number | undefined> {
  const asked = await ask(server, doing, modelUrl(server, version, "/config"));
  const most = "json" in asked ? asked.json["max_batch_size"] : 0;
  return typeof most === "number" && most > 0 ? most : undefined;
}
