import { bindContract, type ContractRequest } from "#src/models/binding/bind-contract.js";
import { type Contract, featureColumns } from "#src/models/binding/contract.js";
import { unknownTraits } from "#src/models/binding/model-facts.js";
import type { TensorSignature } from "#src/columns/tensor.js";
import { type ColumnType, showType, type SourceColumn } from "#src/columns/types.js";
import { refusal } from "./spec.js";

export const column = (name: string, sourceType: string, type: SourceColumn["type"]): SourceColumn => ({
  name,
  sourceType,
  type,
});
/** A column whose source names its type as we do. */
export const typed = (name: string, type: ColumnType): SourceColumn => column(name, showType(type), type);
export const list = (element: ColumnType): ColumnType => ({ kind: "list", element });
export const columns: readonly SourceColumn[] = [
  column("id", "BIGINT", "int64"),
  column("age", "INTEGER", "int32"),
  column("amount", "DECIMAL(10,2)", { kind: "decimal", precision: 10, scale: 2 }),
  column("city", "VARCHAR", "utf8"),
  column("tags", "MAP(VARCHAR, INTEGER)", undefined),
  column("rate", "DOUBLE", "float64"),
];
export const tensor = (name: string, dtype: string | undefined, ...shape: (number | null)[]): TensorSignature => ({
  name,
  dtype,
  shape,
});
export const features = tensor("features", "float32", null, 3);
export const outputs = [tensor("label", "int64", null), tensor("probabilities", "float32", null, 2)];

function request(overrides: Partial<ContractRequest> = {}): ContractRequest {
  return {
    model: "models/churn.onnx",
    signature: { inputs: [features], outputs },
    traits: unknownTraits,
    shard: "in/a.parquet",
    columns,
    expressions: null,
    inputs: undefined,
    outputs: { score: "probabilities[1]" },
    passthrough: ["id"],
    cast: "exact",
    missing: "bad_row",
    ...overrides,
  };
}

export const bind = (overrides: Partial<ContractRequest> = {}): Contract => bindContract(request(overrides));
export const refused = (overrides: Partial<ContractRequest>): string => refusal(() => bind(overrides));
export const featureNames = (contract: Contract): string[] => featureColumns(contract).map(({ name }) => name);
export const withInput = (...shape: (number | null)[]): Partial<ContractRequest> => ({
  signature: { inputs: [tensor("features", "float32", ...shape)], outputs },
});
export const withInputs = (...inputs: TensorSignature[]): Partial<ContractRequest> => ({
  signature: { inputs, outputs },
});
export const withOutput = (...given: TensorSignature[]): Partial<ContractRequest> => ({
  signature: { inputs: [features], outputs: given },
});
/** The first line of what is said: exit code and code, then the finding without the tables. */
export const finding = (said: string): string => said.replace(/\n\n {2}model inputs:[^]*?\n\n/, "\n");
