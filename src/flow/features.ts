import { type Contract, type NumericTensorType, decodedInputs } from "../models/binding/contract.js";
import {
  type FeatureColumn,
  type FeaturePart,
  type FeaturePlan,
  measureFeatures,
  sampleEvery,
} from "../checks/profile/features.js";
import {
  type ProfiledOutput,
  type SlicePlan,
  binsFor,
  planSlices,
  profiledColumns,
} from "../checks/profile/profile.js";
import { tensorElement } from "../columns/tensor.js";
import type { RecordBatch } from "../columns/types.js";
import type { ElementType } from "../columns/values.js";
import type { ReadBatch } from "./pack/packer.js";
import type { BatchRows } from "./pack/input-target.js";
import { firstAtLeast } from "./pack/select-rows.js";
import type { Plan } from "../run/plan/plan.js";
import type { JobSpec } from "../job/jobfile/job-spec.js";
import type { OpenSpan } from "./span.js";

/** How many times as many rows are sampled where `input.where` may leave most of them out. */
const filteredOut = 8;

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
  // Two inputs of the model may read one column.
  const all = [...new Map(featureColumnsOf(contract, new Set(named)).map((column) => [column.name, column])).values()];
  const columns = all.slice(0, profiledColumns);
  const left = all.slice(profiledColumns).map(({ name }) => name);
  const isFiltered = contract.expressions?.list.some(({ kind }) => kind === "where") === true;
  const every = sampleEvery(isFiltered ? input.rows / filteredOut : input.rows);
  return { columns, left, spanRows: commitRows, every, bins: binsOf(contract, columns.length) };
}

function binsOf({ outputs }: Pick<Contract, "outputs">, features: number): number {
  return binsFor(Math.min(outputs.length, profiledColumns) + features);
}

/** The columns of an output that are profiled. @param keys the columns that identify a row */
export function profiledOutput(
  contract: Pick<Contract, "outputs" | "passthrough">,
  { keys, features }: { readonly keys?: ReadonlySet<string> | undefined; readonly features?: FeaturePlan | undefined },
): ProfiledOutput {
  return {
    predicted: contract.outputs.map(({ column: name }) => ({ name, isKey: keys?.has(name) === true })),
    carried: contract.passthrough.map(({ column }) => column),
    bins: binsOf(contract, features?.columns.length ?? 0),
  };
}

/** Says that some features of a run are not profiled; undefined: all are, or the run has no checks. */
export function unprofiledText(plan: Plan, keys: ReadonlySet<string>): string | undefined {
  const { columns, left } = featurePlanOf(plan, keys) ?? { columns: [], left: [] };
  const named = left.slice(0, 20).join(", ");
  return left.length === 0
    ? undefined
    : `only the first ${columns.length} of ${columns.length + left.length} features are compared, and not ${named}${left.length > 20 ? ", …" : ""}`;
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

function elementIn(dtype: NumericTensorType): ElementType {
  return dtype === "float16" ? "float64" : tensorElement(dtype);
}

/** The facts that a worker needs to profile the features of a shard. */
export interface ShardFeatures {
  readonly plan: FeaturePlan;
  readonly firstRow: number;
}

/**
 * Measures the features of a batch, in a part for each span.
 * @param rowStart the shard's number of the first row that was read for the batch
 */
export function batchFeatures(
  { plan, firstRow }: ShardFeatures,
  { inputs, rowCount, selection }: RecordBatch,
  rowStart: number,
): FeaturePart[] {
  const first = firstRow + rowStart;
  const parts: FeaturePart[] = [];
  for (let from = 0; from < rowCount; ) {
    const read = selection?.indices[from] ?? from;
    const spanEnd = read + plan.spanRows - ((first + read) % plan.spanRows);
    const to = selection === undefined ? Math.min(rowCount, spanEnd) : firstAtLeast(selection.indices, spanEnd);
    parts.push(measureFeatures(plan, inputs, { from, to, firstRow: first, indices: selection?.indices }));
    from = to;
  }
  return parts;
}

interface ReadRows {
  readonly batch: ReadBatch;
  readonly range: Pick<BatchRows, "from" | "to">;
  /** The number in the run of the first row that was read for the batch. */
  readonly firstRow: number;
}

/** Adds a batch's features to the span's profiles. Workers have already measured the rows that they scored. */
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
