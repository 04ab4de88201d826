import { bindContract, type Contract, type ContractRequest } from "#src/batch/contract.js";
import type { SourceColumn, TensorSignature } from "#src/batch/types.js";
import { refusal } from "./spec.js";

export const column = (
  name: string,
  sourceType: string,
  type: SourceColumn["type"],
  numeric = type !== undefined,
): SourceColumn => ({
  name,
  sourceType,
  type,
  numeric,
});
export const columns: readonly SourceColumn[] = [
  column("id", "BIGINT", "int64"),
  column("age", "INTEGER", "int32"),
  column("amount", "DECIMAL(10,2)", undefined, true),
  column("city", "VARCHAR", undefined),
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
    shard: "in/a.parquet",
    columns,
    inputs: undefined,
    outputs: { score: "probabilities[1]" },
    passthrough: ["id"],
    ...overrides,
  };
}

export const bind = (overrides: Partial<ContractRequest> = {}): Contract => bindContract(request(overrides));
export const refused = (overrides: Partial<ContractRequest>): string => refusal(() => bind(overrides));
export const featureNames = (contract: Contract): string[] =>
  contract.inputs.flatMap((input) => input.columns.map(({ name }) => name));
export const withInput = (...shape: (number | null)[]): Partial<ContractRequest> => ({
  signature: { inputs: [tensor("features", "float32", ...shape)], outputs },
});
export const withOutput = (...given: TensorSignature[]): Partial<ContractRequest> => ({
  signature: { inputs: [features], outputs: given },
});
