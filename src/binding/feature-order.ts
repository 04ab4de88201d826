import { isRecord } from "../util/checks.js";

/** The columns that a model takes as one input, in its order, and what says so. */
export interface FeatureOrder {
  readonly names: readonly string[];
  /** Where the names are, as messages show it. */
  readonly from: string;
}

/**
 * Keys under which people keep the names: ONNX has no place of its own for them, and the converters of scikit-learn,
 * LightGBM, XGBoost and CatBoost write none. The first four are what these libraries call them.
 */
const usualKeys = [
  "feature_names_in_",
  "feature_names",
  "feature_name",
  "feature_names_",
  "feature_columns",
  "features",
];

/** The order in the metadata of a model's file; undefined: it has none. */
export function orderInMetadata(metadata: ReadonlyMap<string, string>): FeatureOrder | undefined {
  const key = usualKeys.find((name) => metadata.has(name));
  const names = key === undefined ? [] : parseFeatureNames(metadata.get(key) ?? "");
  return names.length === 0 ? undefined : { names, from: `${key} in the model's metadata` };
}

/** Reads names: a list in JSON, alone or under a usual key, a name a line, or names with commas between them. */
export function parseFeatureNames(text: string): readonly string[] {
  const json = parsed(text);
  const list = isRecord(json) && !Array.isArray(json) ? usualKeys.map((key) => json[key]).find(Array.isArray) : json;
  if (Array.isArray(list)) {
    return list.every((name) => typeof name === "string") ? list : [];
  }
  return json === undefined
    ? text
        .split(/\r?\n|,/)
        .map((name) => name.trim())
        .filter((name) => name !== "")
    : [];
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
