import type { ServedFacts } from "../../../binding/served-model.js";
import type { ModelSignature } from "../../../columnar/tensor.js";
import { BrokenTransfer } from "../../../net/request.js";
import { JobError } from "../../../util/errors.js";
import { ask, type Json, untilReady } from "../ask.js";
import type { FindRequest } from "../protocol.js";
import { type ModelServer, urlAt } from "../server.js";
import { signatureOf } from "./metadata.js";

/** The URL of a model, or of one of its versions. */
export function modelUrl(server: ModelServer, version: string | undefined, more = ""): string {
  const ofVersion = version === undefined ? "" : `/versions/${encodeURIComponent(version)}`;
  return urlAt(server, `/v1/models/${encodeURIComponent(server.model)}${ofVersion}${more}`);
}

interface V1Request extends FindRequest {
  /** For servers without metadata. */
  readonly signature: ModelSignature | undefined;
}

/** Asks TensorFlow Serving, or a server of KServe's V1 protocol, for its model. */
export async function findModel(server: ModelServer, { doing, wanted, signature }: V1Request): Promise<ServedFacts> {
  const version = await untilReady(server, doing, () => readyVersion(server, { doing, wanted }));
  const asked = await ask(server, doing, modelUrl(server, version, "/metadata"));
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

/**
 * Returns the version that is ready: the wanted one, otherwise the one with the highest number; undefined for a server
 * without versions (KServe). @throws BrokenTransfer if none is ready yet
 */
async function readyVersion(server: ModelServer, { doing, wanted }: FindRequest): Promise<string | undefined> {
  const asked = await ask(server, doing, modelUrl(server, undefined));
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
  const { version, state, status } = Object(given) as Json;
  const { error_message: message } = Object(status) as Json;
  const said = typeof message === "string" && message !== "" ? ` (${message.slice(0, 200)})` : "";
  return { version: String(version), state: String(state), said };
}
