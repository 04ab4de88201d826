import { createHash } from "node:crypto";
import { type ServedFacts, type ServedModel, unknownTraits } from "../../binding/served-model.js";
import { isTensorType, type NamedTensor, tensorElement, type TensorSignature } from "../../columnar/tensor.js";
import { allocate } from "../../columnar/values.js";
import { JobError } from "../../util/errors.js";
import { openClient } from "./client.js";
import type { Protocol } from "./protocol.js";
import { type ModelServer, serverText } from "./server.js";

/**
 * Asks a server for its model: whether it is ready, its signature, and its version.
 * @param wanted the version that a plan or the spec names; undefined: the one that the server names
 * @throws JobError FILE_MISSING if the server does not have it, PERMISSION, MODEL_INVALID, NETWORK
 */
export async function findServedModel(
  protocol: Protocol,
  server: ModelServer,
  wanted: string | undefined,
): Promise<ServedModel> {
  const doing = `asking for ${serverText(server)}`;
  const known = await protocol.find(server, { doing, wanted });
  const served = known.version === undefined ? await withAnsweredVersion(protocol, server, known) : known;
  const { version, signature } = served;
  if (wanted !== undefined && version !== wanted) {
    const found = version === undefined ? "the server names no version" : `the server has version ${version}`;
    throw new JobError("FILE_MISSING", `${doing}: ${found}, and ${wanted} is asked for`, {
      hint: "serve that version, or leave out model.server.version",
    });
  }
  const { name: kind, layout } = protocol;
  const identity = [kind, server.model, version ?? null, signature, ...(layout === undefined ? [] : [layout])];
  const sha256 = createHash("sha256").update(JSON.stringify(identity)).digest("hex");
  return { name: serverText(server), sha256, traits: unknownTraits, served };
}

/** Some servers name a model's version only in their answers. A blank row is scored to learn it. */
async function withAnsweredVersion(protocol: Protocol, server: ModelServer, served: ServedFacts): Promise<ServedFacts> {
  const { signature } = served;
  const parts = {
    id: "0",
    inputs: signature.inputs.flatMap(blankRow),
    outputs: signature.outputs.map(({ name }) => name),
  };
  const encoded = protocol.encode(parts, served);
  if ("unfit" in encoded || parts.inputs.length < signature.inputs.length) {
    return served;
  }
  const outcome = await openClient({ protocol, server, version: served }).infer({
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
