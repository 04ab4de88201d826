import { readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import type { DeclaredSignature } from "../../binding/declared-signature.js";
import { type FeatureOrder, parseFeatureNames } from "../../binding/feature-order.js";
import { parseMlModel } from "../../models/mlflow/mlmodel.js";
import type { FoundModel } from "../../models/port.js";

/**
 * The order of a model's columns, as its metadata, its signature in MLflow or a file beside it says; undefined: nothing
 * says it.
 */
export async function featureOrderOf({ model, signature }: FoundModel): Promise<FeatureOrder | undefined> {
  const { features } = model.traits;
  if (features !== undefined || !("path" in model)) {
    return features;
  }
  const beside = async (name: string): Promise<string> =>
    await readFile(join(dirname(model.path), name), "utf8").catch(() => "");
  const declared = columnsOf(signature ?? parseMlModel(await beside("MLmodel"))?.signature);
  if (declared.length > 0) {
    return { names: declared, from: "the model's signature in MLflow" };
  }
  for (const name of ["feature_names.json", "feature_names.txt"]) {
    const names = parseFeatureNames(await beside(name));
    if (names.length > 0) {
      return { names, from: `${name} beside the model` };
    }
  }
  return undefined;
}

function columnsOf(signature: DeclaredSignature | undefined): readonly string[] {
  const { inputs = [] } = signature ?? {};
  const names = inputs.flatMap(({ kind, name }) => (kind === "column" && name !== undefined ? [name] : []));
  return names.length === inputs.length ? names : [];
}
