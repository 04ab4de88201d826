import { planSlices, type SlicePlan } from "../checks/slices/slice-plan.js";
import { type Contract, decodedInputs, type NumericTensorType } from "../binding/contract.js";
import { type FeaturePart, measureFeatures } from "../checks/features/feature-part.js";
import {
  type FeatureColumn,
  type FeaturePlan,
  measuredColumn,
  planFeatures,
  sampleEvery,
} from "../checks/features/feature-plan.js";
import { planOutputBytes } from "../checks/output-limits.js";
import { profiledColumns } from "../checks/profiles/column-profile.js";
import { type ValueList, valueList } from "../checks/profiles/outside-values.js";
import type { ProfiledOutput } from "../checks/span-profile.js";
import { tensorElement } from "../columnar/tensor.js";
import type { ElementType } from "../columnar/values.js";
import { type RecordBatch, showType } from "../columnar/types.js";
import type { RowRange } from "../packing/input-target.js";
import type { ScoredBatch } from "../packing/scored-batch.js";
import type { Plan } from "../plan/plan.js";
import type { JobSpec } from "../spec/job-spec.js";
import type { OpenSpan } from "./open-span.js";

/**
 * Chooses the features of a run that are profiled; undefined for a run without checks. `keys`: output columns that
 * identify a row.
 */
export function featurePlanOf(
  {
    checks,
    contract,
    input,
    commitRows,
  }: Pick<Plan, "checks" | "contract" | "commitRows"> & { readonly input: Pick<Plan["input"], "rows"> },
  keys: ReadonlySet<string>,
): FeaturePlan | undefined {
  if (checks === null) {
    return undefined;
  }
  const named = contract.passthrough.filter(({ column }) => keys.has(column)).map(({ source }) => source.name);
  const columns = featureColumnsOf(contract, new Set(named));
  const every = checks.sampleEvery ?? sampleEvery(input.rows);
  return planFeatures(columns, { outputs: contract.outputs.length, every, spanRows: commitRows });
}

/** How the outputs of a run are profiled. */
export interface ProfiledValues {
  /** The bytes that their profiles share. */
  readonly bytes: number;
  /** The values that the spec allows, by column. */
  readonly lists: ReadonlyMap<string, ValueList>;
}

/** Says how the outputs of a run are profiled. */
export function profiledValuesOf(
  { checks }: Pick<JobSpec, "checks">,
  { contract }: Pick<Plan, "contract">,
  features: FeaturePlan | undefined,
): ProfiledValues {
  const outputs = contract.outputs
    .slice(0, profiledColumns)
    .map(({ column: name, type }) => ({ name, type: showType(type) }));
  const lists = Object.entries(checks?.outputs ?? {}).flatMap(([name, wanted]) =>
    wanted.in === undefined ? [] : [[name, valueList(wanted.in)] as const],
  );
  return { bytes: planOutputBytes(outputs, features?.columns.map(measuredColumn)), lists: new Map(lists) };
}

/**
 * The columns of an output that are profiled.
 * @param about the columns that identify a row, and how the others are profiled
 */
export function profiledOutput(
  { outputs, passthrough }: Pick<Contract, "outputs" | "passthrough">,
  { keys, values }: { readonly keys?: ReadonlySet<string> | undefined; readonly values?: ProfiledValues | undefined },
): ProfiledOutput {
  return {
    predicted: outputs.map(({ column: name }) => ({
      name,
      isKey: keys?.has(name) === true,
      list: values?.lists.get(name),
    })),
    carried: passthrough.map(({ column }) => column),
    bytes: values?.bytes,
  };
}

/** Says that some features of a run are not profiled; undefined: all are, or the run has no checks. */
export function unprofiledText(plan: Plan, keys: ReadonlySet<string>): string | undefined {
  const { columns, left } = featurePlanOf(plan, keys) ?? { columns: [], left: 0 };
  return left === 0
    ? undefined
    : `only the first ${columns.length} of ${columns.length + left} features are profiled and compared`;
}

/** Chooses the slices of a run that are profiled; undefined for a run without `checks.slices`. */
export function slicePlanOf(
  { checks, contract }: Pick<Plan, "checks" | "contract">,
  keys: ReadonlySet<string>,
): SlicePlan | undefined {
  const outputs = contract.outputs.map(({ column: name, type }) => ({ name, type }));
  return (
    checks?.slices &&
    planSlices(
      checks.slices,
      outputs.filter(({ name }) => !keys.has(name)),
    )
  );
}

/** Returns the output columns that identify a row. Profiles contain no values of them. */
export function keyColumns({ checks, output }: Pick<JobSpec, "checks" | "output">): ReadonlySet<string> {
  return new Set([...(checks?.unique ?? []), ...(output.postgres?.key ?? [])]);
}

/** @param keys columns of the input that identify a row */
function featureColumnsOf(contract: Pick<Contract, "inputs">, keys: ReadonlySet<string>): FeatureColumn[] {
  const columnOf = (name: string, about: Omit<FeatureColumn, "name" | "isKey">): FeatureColumn =>
    keys.has(name) ? { name, ...about, isKey: true } : { name, ...about };
  return decodedInputs(contract).flatMap((binding, input): FeatureColumn[] => {
    if (binding.kind === "matrix") {
      const type = elementIn(binding.dtype);
      return binding.columns.map(({ name }, place) => columnOf(name, { kind: "number", type, input, place }));
    }
    const { name } = binding.column;
    if (binding.kind === "text") {
      const column = columnOf(name, { kind: "text", type: "utf8", input, place: 0 });
      // Texts that are tokenized have few repeats, and their values do not belong into a profile.
      return [binding.tokens === undefined ? column : { ...column, isKey: true }];
    }
    return [
      columnOf(name, {
        kind: "vector",
        type: { kind: "list", element: elementIn(binding.dtype) },
        input,
        place: 0,
      }),
    ];
  });
}

/** Returns the element type that record batches have for a tensor's elements. */
function elementIn(dtype: NumericTensorType): ElementType {
  return dtype === "float16" ? "float64" : tensorElement(dtype);
}

/** Logs how many features are not profiled, if there are any. */
export function logLeftFeatures(log: { info(message: string): void }, plan: FeaturePlan | undefined): void {
  if (plan !== undefined && plan.left > 0) {
    const { columns, left } = plan;
    log.info(
      `the checks compare the first ${columns.length} of ${columns.length + left} columns that the model reads; the other columns are not compared`,
    );
  }
}

/** The facts that a worker needs to profile the features of a shard. */
export interface ShardFeatures {
  readonly plan: FeaturePlan;
  /** The number of the shard's first row in the run. */
  readonly firstRow: number;
}

/**
 * Measures the features of a batch without filtered rows, in a part for each span.
 * @param rowStart the batch's first row in its shard
 */
export function batchFeatures(
  { plan, firstRow }: ShardFeatures,
  { inputs, rowCount }: RecordBatch,
  rowStart: number,
): FeaturePart[] {
  const first = firstRow + rowStart;
  const parts: FeaturePart[] = [];
  for (let from = 0; from < rowCount; ) {
    const to = Math.min(rowCount, from + plan.spanRows - ((first + from) % plan.spanRows));
    parts.push(measureFeatures(plan, inputs, { from, to, firstRow: first }));
    from = to;
  }
  return parts;
}

interface ReadRows {
  readonly batch: ScoredBatch;
  readonly range: Pick<RowRange, "from" | "to">;
  /** The number in the run of the first row that was read for the batch. */
  readonly firstRow: number;
}

/**
 * Adds the features of a batch's rows to the span's profiles. Workers have already measured the rows that they scored.
 */
export function takeFeatures(
  plan: FeaturePlan | undefined,
  { features }: Pick<OpenSpan, "features">,
  { batch, range: { from, to }, firstRow }: ReadRows,
): void {
  if (plan === undefined || features === undefined) {
    return;
  }
  const { predictions, features: parts, selection, inputs } = batch;
  if (predictions === undefined) {
    features.add(measureFeatures(plan, inputs, { from, to, firstRow, indices: selection?.indices }));
    return;
  }
  for (const part of parts ?? []) {
    if (part.from >= from && part.from < to) {
      features.add(part);
    }
  }
}
