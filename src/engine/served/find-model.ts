import { createHash } from "node:crypto";
import { type ServedFacts, type ServedModel, unknownTraits } from "../../binding/served-model.js";
import type { ModelSignature, NamedTensor, TensorSignature } from "../../columnar/tensor.js";
import { isTensorType, tensorElement } from "../../columnar/tensor.js";
import { allocate } from "../../columnar/values.js";
import { BrokenTransfer } from "../../net/http-failures.js";
import { readJson, readText } from "../../net/http.js";
import type { HttpAnswer, HttpPlace } from "../../net/http-place.js";
import { JobError } from "../../util/errors.js";
import { type RetryRules, tryAgain } from "../../util/retry.js";
import { openClient } from "./client.js";
import { typeOfDatatype } from "./datatypes.js";
import { binaryRequest, jsonRequest } from "./inference.js";
import { type ModelServer, modelUrl, placeOf, serverText } from "./server.js";

type Json = Readonly<Record<string, unknown>>;

/**
 * Asks a server for its model: whether it is ready, its signature, and its version.
 * @param wanted the version that a plan or the spec names; undefined: the one that the server names
 * @throws JobError FILE_MISSING if the server does not have it, PERMISSION, MODEL_INVALID, NETWORK
 */
export async function findServedModel(server: ModelServer, wanted: string | undefined): Promise<ServedModel> {
  const doing = `asking for ${serverText(server)}`;
  const about = await ask(server, doing, server.url.concat("/v2"));
  const extensions = new Set("json" in about ? listIn(about.json, "extensions") : []);
  const found = await metadataOf(server, { doing, wanted });
  const signature = signatureOf(found.json, doing);
  const version = found.version ?? latest(listIn(found.json, "versions"), doing);
  await requireReady(server, { doing, url: modelUrl(server, found.version) });
  const isBinary = extensions.has("binary_tensor_data");
  const mostRows = extensions.has("model_configuration") ? await limitOf(server, { doing, version }) : undefined;
  const known: ServedFacts = { signature, version, isVersionInPath: version !== undefined, isBinary, mostRows };
  const served = version === undefined ? await withAnsweredVersion(server, known) : known;
  if (wanted !== undefined && served.version !== wanted) {
    throw new JobError(
      "FILE_MISSING",
      `${doing}: ${served.version === undefined ? "the server names no version" : `the server has version ${served.version}`}, and ${wanted} is asked for`,
      {
        hint: "serve that version, or leave out model.server.version",
      },
    );
  }
  const identity = JSON.stringify(["v2", server.model, served.version ?? null, signature]);
  const sha256 = createHash("sha256").update(identity).digest("hex");
  return { name: serverText(server), sha256, traits: unknownTraits, served };
}

type Asked = { readonly json: Json } | { readonly refused: HttpAnswer; readonly error: unknown };

/** Reads JSON. An answer that says that something is not there is returned, any other refusal thrown. */
async function ask(
  server: ModelServer,
  doing: string,
  url: string,
  read: (url: string, place: HttpPlace) => Promise<unknown> = readJson,
): Promise<Asked> {
  const place = placeOf(server, doing);
  let refused: HttpAnswer | undefined;
  const keep = (answer: HttpAnswer): JobError => {
    refused = answer;
    return place.refused(answer);
  };
  try {
    return { json: Object(await read(url, { ...place, refused: keep })) as Json };
  } catch (error) {
    if (refused !== undefined && [400, 404, 501].includes(refused.status)) {
      return { refused, error };
    }
    throw error;
  }
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
  return await tryAgain(doing, server.retry, readyRules(server, doing), async () => {
    const asked = await ask(server, doing, url);
    if ("refused" in asked && asked.refused.status !== 501) {
      await expectReady(server, doing, `${server.url}/v2/health/ready`);
    }
    return asked;
  });
}

/** Waits until a model is ready. */
async function requireReady(
  server: ModelServer,
  { doing, url }: { readonly doing: string; readonly url: string },
): Promise<void> {
  await tryAgain(doing, server.retry, readyRules(server, doing), () => expectReady(server, doing, `${url}/ready`));
}

/** @throws BrokenTransfer if the server says that something is not ready */
async function expectReady(server: ModelServer, doing: string, url: string): Promise<void> {
  const asked = await ask(server, doing, url, readText);
  // A server that does not have the URL does not say.
  if ("refused" in asked && asked.refused.status === 400) {
    throw new BrokenTransfer(`it is not ready (${asked.refused.status})`);
  }
}

function readyRules(server: ModelServer, doing: string): RetryRules {
  return {
    judge: (error) =>
      error instanceof BrokenTransfer ? { kind: "again", found: error.message } : { kind: "end", error },
    code: "NETWORK",
    hint: placeOf(server, doing).hint,
  };
}

function listIn(json: Json, key: string): string[] {
  const list = json[key];
  return Array.isArray(list) ? list.filter((one) => typeof one === "string") : [];
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
  const asked = await ask(server, doing, `${modelUrl(server, version)}/config`);
  const most = "json" in asked ? asked.json["max_batch_size"] : 0;
  return typeof most === "number" && most > 0 ? most : undefined;
}

/** Some servers name a model's version only in their answers. A blank row is scored to learn it. */
async function withAnsweredVersion(server: ModelServer, served: ServedFacts): Promise<ServedFacts> {
  const { signature, isBinary } = served;
  const parts = {
    id: "0",
    inputs: signature.inputs.flatMap(blankRow),
    outputs: signature.outputs.map(({ name }) => name),
  };
  const encoded = isBinary ? binaryRequest(parts) : jsonRequest(parts);
  if ("unfit" in encoded || parts.inputs.length < signature.inputs.length) {
    return served;
  }
  const outcome = await openClient(server, served).infer({
    encoded,
    rows: 1,
    isBlank: true,
    wanted: signature.outputs,
  });
  return outcome.kind === "answered" ? { ...served, version: outcome.answer.version } : served;
}

/** A row of zeros or empty texts; none for a type that no tensor has. */
function blankRow({ name, dtype, shape }: TensorSignature): NamedTensor[] {
  const dims = shape.map((size) => size ?? 1);
  const count = dims.reduce((product, size) => product * size, 1);
  if (!isTensorType(dtype)) {
    return [];
  }
  return dtype === "string"
    ? [{ name, dtype, dims, data: { offsets: new Uint32Array(count + 1), bytes: new Uint8Array() } }]
    : [{ name, dtype, dims, data: allocate(tensorElement(dtype), count) }];
}
