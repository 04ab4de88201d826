import type { ColumnType } from "#src/columns/types.js";
import type { Case, CaseShard } from "./cases.js";
import { failed } from "./computed.js";
import { type CastRules, castFeature, type Fault, type Feature, shownValue } from "./features.js";
import type { Binding, Prediction } from "./models.js";
import type { Value } from "./values.js";

/** What must become of a row. */
export interface ExpectedRow {
  /** The shard's path as the job names it, and the row's number there. */
  readonly shard: string;
  readonly row: number;
  /** By output column. */
  readonly carried: readonly Value[];
  readonly outcome:
    | { readonly kind: "filtered" }
    /** Any of these is a reason to reject it. */
    | { readonly kind: "bad"; readonly faults: readonly Fault[] }
    | { readonly kind: "scored"; readonly predictions: readonly Prediction[] };
  /** The elements of each input, as the model gets them; only where the row is scored or its prediction is at fault. */
  readonly features?: ReadonlyMap<string, readonly Feature[]>;
}

/** The columns of the output with their types, in order. */
export function expectedColumns({ carried, columns, computed, folderTypes, model }: Case): [string, ColumnType][] {
  const typeOf = (name: string): ColumnType =>
    computed.find((one) => one.name === name)?.type ??
    columns.find((one) => one.name === name)?.type ??
    folderTypes.get(name) ??
    "utf8";
  return [
    ...carried.map((name): [string, ColumnType] => [name, typeOf(name)]),
    ...model.outputs.map(({ name, type }): [string, ColumnType] => [name, type]),
  ];
}

/** What must become of each row, in the order of the plan. */
export function expectedRows(one: Case): ExpectedRow[] {
  const places = new Map(one.columns.map(({ name }, index) => [name, index]));
  const types = new Map([...one.columns, ...one.computed].map(({ name, type }) => [name, type]));
  return one.shards.flatMap((shard) =>
    Array.from({ length: shard.rowEnd - shard.rowStart }, (_, index) => {
      const stored = (name: string): Value => one.values[places.get(name) ?? -1]?.[shard.rowStart + index] ?? null;
      return expectedRow(one, shard, index, { stored, types });
    }),
  );
}

interface RowValues {
  readonly stored: (name: string) => Value;
  readonly types: ReadonlyMap<string, ColumnType>;
}

function expectedRow(one: Case, { path, folders }: CaseShard, row: number, { stored, types }: RowValues): ExpectedRow {
  const place = { shard: path, row };
  const keeps = one.filter?.keeps(stored) ?? true;
  const values = new Map<string, Value>();
  const faults: Fault[] = keeps === failed ? [{ reason: "expression_failed", column: "input.where" }] : [];
  for (const { name, compute } of keeps === true ? one.computed : []) {
    const value = compute(stored);
    if (value === failed) {
      faults.push({ reason: "expression_failed", column: name });
    } else {
      values.set(name, value);
    }
  }
  const valueOf = (name: string): Value =>
    values.has(name)
      ? (values.get(name) ?? null)
      : folders.has(name) && !types.has(name)
        ? (folders.get(name) ?? null)
        : stored(name);
  const carried = one.carried.map(valueOf);
  if (keeps === false) {
    return { ...place, carried, outcome: { kind: "filtered" } };
  }
  if (faults.length > 0) {
    return { ...place, carried, outcome: { kind: "bad", faults } };
  }
  const rules = { exact: one.settings.cast === "exact", nan: one.settings.missing === "nan" };
  const features = new Map<string, readonly Feature[]>();
  for (const binding of one.model.bindings) {
    faults.push(...bind(binding, { valueOf, types, rules }, features));
  }
  if (faults.length > 0) {
    return { ...place, carried, outcome: { kind: "bad", faults } };
  }
  const predictions = one.model.evaluate(features);
  const infinite = one.model.outputs.flatMap(({ name }, index) =>
    isFinitePrediction(predictions[index]) ? [] : [{ reason: "prediction_not_finite", column: name }],
  );
  const outcome =
    infinite.length > 0 ? ({ kind: "bad", faults: infinite } as const) : ({ kind: "scored", predictions } as const);
  return { ...place, carried, outcome, features };
}

function isFinitePrediction(prediction: Prediction | undefined): boolean {
  const { value = 0 } = prediction ?? {};
  return [value].flat().every((one) => typeof one !== "number" || Number.isFinite(one));
}

interface Binder {
  readonly valueOf: (name: string) => Value;
  readonly types: ReadonlyMap<string, ColumnType>;
  readonly rules: CastRules;
}

/** Fills an input with a row's values, or tells why it cannot be. */
function bind(binding: Binding, { valueOf, types, rules }: Binder, features: Map<string, readonly Feature[]>): Fault[] {
  if (binding.kind === "columns") {
    const faults: Fault[] = [];
    const elements = binding.columns.map((column): Feature => {
      const value = valueOf(column);
      const type = types.get(column) ?? "utf8";
      const cast = castFeature(value, type, binding.dtype, rules);
      if ("feature" in cast) {
        return cast.feature;
      }
      const shown = shownValue(value, type);
      faults.push({ reason: cast.reason, column, ...(shown === undefined ? {} : { shown }) });
      return 0;
    });
    features.set(binding.input, elements);
    return faults;
  }
  const { column, width } = binding;
  const type = types.get(column);
  const element = typeof type === "object" && type.kind === "list" ? type.element : "float32";
  const list = valueOf(column) as readonly Value[] | null;
  if (list === null) {
    return [{ reason: "null", column, shown: null }];
  }
  if (binding.kind === "padded" && list.length > width && !binding.truncate) {
    return [{ reason: "too_long", column, shown: `${list.length} elements` }];
  }
  const cast = list.slice(0, width).map((value) => castFeature(value, element, binding.dtype, rules));
  // A list is told as a whole: a NULL in it is a value that does not fit.
  const reasons = new Set(
    cast.flatMap((one) => ("reason" in one ? [one.reason === "null" ? "does_not_fit" : one.reason] : [])),
  );
  if (binding.kind === "list" && list.length !== width) {
    return [{ reason: "does_not_fit", column }];
  }
  const elements = cast.flatMap((one) => ("feature" in one ? [one.feature] : []));
  if (binding.kind === "list") {
    features.set(binding.input, elements);
  } else {
    const filling = Array.from({ length: width - elements.length }, () => binding.value);
    const zeros = filling.map(() => 0);
    const ones = elements.map(() => 1);
    const isRight = binding.side === "right";
    features.set(binding.input, isRight ? [...elements, ...filling] : [...filling, ...elements]);
    features.set(binding.mask, isRight ? [...ones, ...zeros] : [...zeros, ...ones]);
  }
  return [...reasons].map((reason) => ({ reason, column }));
}
