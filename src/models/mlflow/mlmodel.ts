import { parse } from "yaml";
import type { DeclaredField, DeclaredSignature } from "../../binding/signatures.js";
import { parseJson } from "../../plan/parse-plan.js";
import { isRecord } from "../../util/checks.js";

/** The facts about a model in its file `MLmodel`. */
export interface MlModel {
  /** The formats that the model is stored in, such as `sklearn`. */
  readonly flavors: readonly string[];
  /** The ONNX file, below the folder of MLmodel; undefined: the model is not stored as ONNX. */
  readonly onnxFile: string | undefined;
  readonly signature: DeclaredSignature | undefined;
}

/** Parses the text of an MLmodel file; undefined if it is something else. */
export function parseMlModel(text: string): MlModel | undefined {
  const document = parseYaml(text);
  const flavors = isRecord(document) ? document["flavors"] : undefined;
  if (!isRecord(document) || !isRecord(flavors)) {
    return undefined;
  }
  const { onnx } = flavors;
  const data = isRecord(onnx) ? onnx["data"] : undefined;
  return {
    flavors: Object.keys(flavors),
    onnxFile: typeof data === "string" ? data : undefined,
    signature: signatureOf(document["signature"]),
  };
}

function parseYaml(text: string): unknown {
  try {
    return parse(text);
  } catch {
    return undefined; // the caller reports it
  }
}

function signatureOf(signature: unknown): DeclaredSignature | undefined {
  return isRecord(signature)
    ? { inputs: fieldsOf(signature["inputs"]), outputs: fieldsOf(signature["outputs"]) }
    : undefined;
}

function fieldsOf(fields: unknown): DeclaredField[] {
  const list = typeof fields === "string" ? parseJson(fields) : undefined;
  return Array.isArray(list) ? list.filter(isRecord).map(fieldOf) : [];
}

function fieldOf(field: Readonly<Record<string, unknown>>): DeclaredField {
  const name = typeof field["name"] === "string" ? field["name"] : undefined;
  const tensor = field["tensor-spec"];
  if (!isRecord(tensor)) {
    return { kind: "column", name };
  }
  const shape = Array.isArray(tensor["shape"]) ? tensor["shape"] : [];
  return {
    kind: "tensor",
    name,
    dtype: onnxType(String(tensor["dtype"])),
    shape: shape.map((length) => (typeof length === "number" && length >= 0 ? length : null)),
  };
}

/** Returns the ONNX name of a NumPy type. Only texts have another name. */
function onnxType(dtype: string): string {
  return /^(object|str|string|[<>|=]?U\d*)$/.test(dtype) ? "string" : dtype;
}
