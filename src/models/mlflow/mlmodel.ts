import { parse } from "yaml";
import type { DeclaredField, DeclaredSignature } from "../../binding/declared-signature.js";
import { parseJson } from "../../plan/parse-plan.js";
import { isRecord } from "../../util/checks.js";

/** What the file `MLmodel` says of a model. */
export interface MlModel {
  /** The formats that the model is stored in, such as `sklearn`. */
  readonly flavors: readonly string[];
  /** The ONNX file, below the folder of MLmodel; undefined: the model is not stored as ONNX. */
  readonly onnxFile: string | undefined;
  readonly signature: DeclaredSignature | undefined;
}

/** Parses MLmodel; undefined if the text is not one. */
export function parseMlModel(text: string): MlModel | undefined {
  const found = parseYaml(text);
  const flavors = isRecord(found) ? found["flavors"] : undefined;
  if (!isRecord(found) || !isRecord(flavors)) {
    return undefined;
  }
  const { onnx } = flavors;
  const data = isRecord(onnx) ? onnx["data"] : undefined;
  return {
    flavors: Object.keys(flavors),
    onnxFile: typeof data === "string" ? data : undefined,
    signature: signatureOf(found["signature"]),
  };
}

function parseYaml(text: string): unknown {
  try {
    return parse(text);
  } catch {
    return undefined; // a caller says what that means
  }
}

function signatureOf(given: unknown): DeclaredSignature | undefined {
  return isRecord(given) ? { inputs: fieldsOf(given["inputs"]), outputs: fieldsOf(given["outputs"]) } : undefined;
}

/** Each side is a list in JSON. */
function fieldsOf(given: unknown): DeclaredField[] {
  const list = typeof given === "string" ? parseJson(given) : undefined;
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

/** NumPy's names of types are those of ONNX, except for texts. */
function onnxType(dtype: string): string {
  return /^(object|str|string|[<>|=]?U\d*)$/.test(dtype) ? "string" : dtype;
}
