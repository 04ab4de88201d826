import { assertNever } from "../../base/errors.js";
import type { TensorType, Tokenizing } from "../../columns/tensor.js";
import type {
  ColumnType,
  SourceColumn,
  BytesColumn,
  FixedColumn,
  OutputRows,
  TypedColumn,
} from "../../columns/types.js";

/** How shard columns become model inputs and tensors become output columns. Part of the plan: plain JSON. */
export interface Contract {
  readonly inputs: readonly InputBinding[];
  readonly outputs: readonly OutputBinding[];
  readonly passthrough: readonly PassthroughBinding[];
  /** The model takes exactly this many rows a call; the last batch is padded. null: any number. */
  readonly fixedBatchRows: number | null;
  /** lossy: an integer that the input's type cannot hold is rounded; exact: it is a bad row. */
  readonly cast: "exact" | "lossy";
  readonly expressions: Expressions | null;
  /** nan: a NULL feature of a float input becomes NaN; bad_row: it is a bad row, and so is NaN. */
  readonly missing: "bad_row" | "nan";
  /** Adds the columns run_id, model_sha256 and scored_at. */
  readonly lineage?: true | undefined;
  /** Adds the column _row; default: it is not there. */
  readonly numbered?: true | undefined;
  /** Adds the column reuse_hash; default: it is not there. */
  readonly reuse?: ReuseBinding | undefined;
}

interface ReuseBinding {
  /** Output columns that name a row. */
  readonly key: readonly string[];
}

/** What a decoder needs of a contract: the row filter, a column for each input, then carried columns as they are. */
export type Projection = Pick<Contract, "inputs" | "passthrough" | "expressions" | "cast" | "missing">;

/** The part of a contract that decides how numbers become elements of a tensor. */
export type CastRules = Pick<Contract, "cast" | "missing">;

export type NumericTensorType = Exclude<TensorType, "string">;

/**
 * `matrix`: an input `[N, F]` packed from F columns, or `[N]` from one. `list`: `[N, F]` from one list column
 * whose rows have F elements. `padded`: `[N, S]` from one list column whose rows have up to S, the others filled up.
 * `mask`: `[N, S]`, 1 where the lists of a padded input have elements, else 0. `text`: a string input `[N]` or
 * `[N, 1]` from one text column; with `tokens`, an input `[N, S]` of the token ids of the texts, with the inputs that
 * are made with them.
 */
export type InputBinding =
  | {
      readonly kind: "matrix";
      readonly input: string;
      readonly dtype: NumericTensorType;
      readonly rank: 1 | 2;
      readonly columns: readonly ColumnRef[];
    }
  | {
      readonly kind: "list";
      readonly input: string;
      readonly dtype: NumericTensorType;
      readonly width: number;
      readonly column: ColumnRef;
    }
  | {
      readonly kind: "padded";
      readonly input: string;
      readonly dtype: NumericTensorType;
      readonly width: number;
      readonly column: ColumnRef;
      /** Fills lists of fewer than `width` elements up. */
      readonly value: number;
      /** The side that the value is added to. */
      readonly side: "left" | "right";
      /** Whether a longer list is cut to its first `width` elements; else its row is a bad row. */
      readonly truncate: boolean;
      /** A batch is only as wide as its longest list. */
      readonly shrink: boolean;
    }
  | { readonly kind: "mask"; readonly input: string; readonly dtype: NumericTensorType; readonly of: string }
  | {
      readonly kind: "text";
      readonly input: string;
      readonly rank: 1 | 2;
      readonly column: ColumnRef;
      readonly tokens?: Tokenizing | undefined;
    };

export type TextBinding = Extract<InputBinding, { kind: "text" }>;
export type PaddedBinding = Extract<InputBinding, { kind: "padded" }>;
/** What is read from shards; a mask is made of another input. */
export type DecodedBinding = Exclude<InputBinding, { kind: "mask" }>;

/** Row-wise SQL over the shard's columns. */
export interface Expressions {
  /** The row filter, where there is one, then the computed columns that are used. */
  readonly list: readonly Expression[];
  /** Columns from folder names that they use. */
  readonly folders: readonly ColumnRef[];
  /** All columns that they use, with their types: rows may come without a shard. */
  readonly columns: readonly ColumnRef[];
}

export interface Expression {
  /** `where`: a row stays where it is true. `column`: a column that the shard does not have, or has otherwise. */
  readonly kind: "where" | "column";
  /** The computed column's; of a filter `input.where`. */
  readonly name: string;
  /** SQL, as the spec has it: to be checked before it is run. */
  readonly text: string;
  /** The shard's columns that it uses. */
  readonly uses: readonly string[];
}

/** A column, or a field of a struct column. */
export interface ColumnRef {
  /** The column's name in the spec: `age`, or `user.age`. */
  readonly name: string;
  /** The column, then the fields that lead to the value. */
  readonly path: readonly string[];
  readonly type: ColumnType;
  /** The value is in the shard's URI. */
  readonly partition?: true | undefined;
  /** An expression of this name computes it. */
  readonly computed?: true | undefined;
}

/** `scalar`: a tensor `[N]` or `[N, 1]`; `element`: one element of each row of `[N, K]`; `vector`: a row as a list. */
export type OutputBinding =
  | { readonly kind: "scalar" | "vector"; readonly column: string; readonly tensor: string; readonly type: ColumnType }
  | {
      readonly kind: "element";
      readonly column: string;
      readonly tensor: string;
      readonly element: number;
      readonly type: ColumnType;
    };

export interface PassthroughBinding {
  /** The output column: a path's dots become `_`. */
  readonly column: string;
  readonly source: ColumnRef;
}

/** The shard columns that a contract reads, each once. */
export function usedColumns(contract: Contract): string[] {
  const direct = boundColumns(contract).flatMap(({ path, computed }) => (computed === true ? [] : [path[0] ?? ""]));
  const inExpressions = contract.expressions?.list.flatMap(({ uses }) => uses) ?? [];
  return [...new Set([...direct, ...inExpressions])];
}

/** The columns whose values are in folder names. */
export function folderColumns(columns: readonly SourceColumn[]): ColumnRef[] {
  return columnRefs(columns).filter(({ partition }) => partition === true);
}

/** Columns of a shard whose types are known. */
export function columnRefs(columns: readonly SourceColumn[]): ColumnRef[] {
  return columns.flatMap(({ name, type, partition }) =>
    type === undefined ? [] : [{ name, path: [name], type, ...(partition && { partition }) }],
  );
}

/** Every column that is carried through, then every one that is a feature. */
export function boundColumns({ inputs, passthrough }: Pick<Contract, "inputs" | "passthrough">): ColumnRef[] {
  return [...passthrough.map(({ source }) => source), ...featureColumns({ inputs })];
}

/** Every column that is a feature, in the order of the inputs. */
export function featureColumns({ inputs }: Pick<Contract, "inputs">): ColumnRef[] {
  return inputs.flatMap((binding) => inputColumns(binding));
}

/** The columns of one input; a mask has none of its own. */
export function inputColumns(binding: InputBinding): readonly ColumnRef[] {
  switch (binding.kind) {
    case "matrix":
      return binding.columns;
    case "list":
    case "padded":
    case "text":
      return [binding.column];
    case "mask":
      return [];
    default:
      return assertNever(binding);
  }
}

/** The binding with other columns in the places of its own. */
export function withColumns(binding: InputBinding, change: (column: ColumnRef) => ColumnRef): InputBinding {
  switch (binding.kind) {
    case "matrix":
      return { ...binding, columns: binding.columns.map(change) };
    case "list":
    case "padded":
    case "text":
      return { ...binding, column: change(binding.column) };
    case "mask":
      return binding;
    default:
      return assertNever(binding);
  }
}

/** The inputs that are read from shards, in their order. */
export function decodedInputs({ inputs }: Pick<Projection, "inputs">): DecodedBinding[] {
  return inputs.filter((binding) => binding.kind !== "mask");
}

/** The input that a mask is of. */
export function maskedInput({ inputs }: Pick<Contract, "inputs">, of: string): PaddedBinding {
  const found = inputs.find(({ input }) => input === of);
  if (found?.kind !== "padded") {
    throw new RangeError(`input ${of} is not padded, and has no mask`);
  }
  return found;
}

/** Elements of an input's tensor for each row. */
export function inputWidth(binding: InputBinding, contract: Pick<Contract, "inputs">): number {
  switch (binding.kind) {
    case "text":
      return binding.tokens?.width ?? 1;
    case "list":
    case "padded":
      return binding.width;
    case "mask":
      return maskedInput(contract, binding.of).width;
    case "matrix":
      return binding.columns.length;
    default:
      return assertNever(binding);
  }
}

/** Values that are read of each row; a list has many. */
export function valuesPerRow(contract: Pick<Contract, "inputs" | "passthrough">): number {
  const widths = decodedInputs(contract).map((binding) => inputWidth(binding, contract));
  return widths.reduce((sum, width) => sum + width, Math.max(1, contract.passthrough.length));
}

/** The tensors that a contract's outputs come from, each once. */
export function outputTensors({ outputs }: Pick<Contract, "outputs">): string[] {
  return [...new Set(outputs.map(({ tensor }) => tensor))];
}

/** Type and name of each output column, in output order. */
export function outputColumns(contract: Contract): TypedColumn[] {
  return [
    ...scoredColumns(contract),
    ...(contract.reuse === undefined ? [] : [reuseColumn]),
    ...(contract.lineage === true ? lineageColumns : []),
    ...(contract.numbered === true ? [rowNumberColumn] : []),
  ];
}

/** The output columns that come from the input and the model. */
export function scoredColumns(contract: Contract): TypedColumn[] {
  return [
    ...contract.passthrough.map(({ column, source }) => ({ name: column, type: source.type })),
    ...predictedColumns(contract),
  ];
}

/** The output columns that the model predicts. */
export function predictedColumns({ outputs }: Contract): TypedColumn[] {
  return outputs.map(({ column, type }) => ({ name: column, type }));
}

/** What `output.lineage: true` adds to each row, after all other columns. */
export const lineageColumns = [
  { name: "run_id", type: "utf8" },
  { name: "model_sha256", type: "utf8" },
  { name: "scored_at", type: "timestamp[us, UTC]" },
] as const satisfies readonly TypedColumn[];

/** What is added to the rows of a run that is compared with another one: the number of the row in the run. */
export const rowNumberColumn = { name: "_row", type: "int64" } as const satisfies TypedColumn;

export function withRowNumbers(rows: OutputRows, numbers: () => BigInt64Array<ArrayBuffer>): OutputRows {
  return { ...rows, columns: [...rows.columns, { ...rowNumberColumn, column: longs(numbers()) }] };
}

export interface Lineage {
  readonly runId: string;
  readonly modelSha256: string;
  /** Milliseconds from 1970. */
  readonly scoredAtMs: number;
}

export function withLineage(rows: OutputRows, { runId, modelSha256, scoredAtMs }: Lineage): OutputRows {
  const { rowCount } = rows;
  const scoredAt = BigInt(Math.round(scoredAtMs * 1000));
  const values = [
    sameText(runId, rowCount),
    sameText(modelSha256, rowCount),
    longs(new BigInt64Array(rowCount).fill(scoredAt)),
  ] as const;
  const added = lineageColumns.map(({ name, type }, index) => ({ name, type, column: values[index] ?? values[0] }));
  return { ...rows, columns: [...rows.columns, ...added] };
}

function longs(data: BigInt64Array<ArrayBuffer>): FixedColumn {
  return { kind: "fixed", elementsPerValue: 1, data, valid: undefined };
}

function sameText(text: string, rowCount: number): BytesColumn {
  const encoded = new TextEncoder().encode(text);
  const bytes = new Uint8Array(encoded.length * rowCount);
  const offsets = new Uint32Array(rowCount + 1);
  for (let row = 0; row < rowCount; row += 1) {
    bytes.set(encoded, row * encoded.length);
    offsets[row + 1] = (row + 1) * encoded.length;
  }
  return { kind: "bytes", offsets, bytes, valid: undefined };
}

/** What `reuse` adds to each row: a hash of its features, the model, its key and its predictions. */
export const reuseColumn = { name: "reuse_hash", type: "uuid" } as const;

/** The contract with the row filter and the computed columns that it uses: others are another model's. */
export function withUsedExpressions(contract: Contract): Contract {
  const { expressions } = contract;
  if (expressions === null) {
    return contract;
  }
  const used = computedColumns(contract);
  const list = expressions.list.filter(({ kind, name }) => kind === "where" || used.has(name));
  const sources = new Set(list.flatMap(({ uses }) => uses));
  const folders = expressions.folders.filter(({ name }) => sources.has(name));
  const columns = expressions.columns.filter(({ name }) => sources.has(name));
  return { ...contract, expressions: list.length === 0 ? null : { list, folders, columns } };
}

/** The names of the computed columns that a contract uses. */
export function computedColumns(contract: Pick<Contract, "inputs" | "passthrough">): ReadonlySet<string> {
  return new Set(boundColumns(contract).flatMap(({ path, computed }) => (computed === true ? [path[0] ?? ""] : [])));
}
