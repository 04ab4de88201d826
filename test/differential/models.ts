import type { ColumnType } from "#src/columns/types.js";
import type { SmallModel } from "../support/onnx.js";
import type { Dice } from "./dice.js";
import type { Dtype, Feature } from "./features.js";
import { type TableColumn, numberTypes } from "./values.js";

/** How columns fill a model's input. */
export type Binding =
  | { readonly kind: "columns"; readonly input: string; readonly dtype: Dtype; readonly columns: readonly string[] }
  | {
      readonly kind: "list";
      readonly input: string;
      readonly dtype: Dtype;
      readonly column: string;
      readonly width: number;
    }
  | {
      readonly kind: "padded";
      readonly input: string;
      readonly mask: string;
      readonly dtype: Dtype;
      readonly column: string;
      readonly width: number;
      readonly value: number;
      readonly side: "left" | "right";
      readonly truncate: boolean;
    };

/** What a row's features are predicted to be. `tolerance`: how far a float may be away; absent: it is exact. */
export interface Prediction {
  readonly value: Feature | readonly number[];
  readonly tolerance?: number;
}

/** A column of the output, of a tensor or of an element of each of its rows. */
export interface PredictedColumn {
  readonly name: string;
  readonly source: string;
  readonly type: ColumnType;
}

/** A model made for one case, with plain JavaScript that computes what it must give. */
export interface CaseModel {
  readonly model: SmallModel;
  readonly bindings: readonly Binding[];
  readonly outputs: readonly PredictedColumn[];
  /** By input: its elements of one row. One prediction for each output. */
  readonly evaluate: (features: ReadonlyMap<string, readonly Feature[]>) => readonly Prediction[];
  /** Whether the spec may leave `model.inputs` out: columns have the names of inputs. */
  readonly byName: boolean;
}

/** A column that a model needs: the table makes it. */
export type WantedColumn = Pick<TableColumn, "name"> & { readonly type: ColumnType };

export interface ModelDraft {
  readonly columns: readonly WantedColumn[];
  readonly model: CaseModel;
}

/** The first dimension: any number of rows, or always as many. */
const batchDimension = (dice: Dice): number | "N" => (dice.chance(0.15) ? dice.pick([1, 5, 32]) : "N");

export function anyModel(dice: Dice, types: readonly ColumnType[]): ModelDraft {
  const makers = [identityModel, linearModel, linearModel, stumpsModel, stumpsModel];
  return dice.pick(types === numberTypes ? [...makers, listModel, paddedModel] : makers)(dice, types);
}

const dtypes = "float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool".split(" ") as readonly Dtype[];

/** Several inputs of one column each, given back as they came. */
function identityModel(dice: Dice, types: readonly ColumnType[]): ModelDraft {
  const rows = batchDimension(dice);
  const inputs = Array.from({ length: dice.int(1, 4) }, (_, index) => {
    const isText = dice.chance(0.2);
    const type: ColumnType = isText ? "utf8" : dice.pick(dice.chance(0.1) ? (["bool"] as const) : types);
    const same = typeof type === "string" && dtypes.includes(type as Dtype) && dice.chance(0.5);
    const dtype: Dtype = isText ? "string" : same ? (type as Dtype) : dice.pick(dtypes);
    return { name: `in${index}`, type, dtype, shape: dice.chance(0.5) ? [rows] : [rows, 1] };
  });
  return {
    columns: inputs,
    model: {
      model: {
        inputs,
        outputs: inputs.map((input, index) => ({ ...input, name: `out${index}` })),
        nodes: inputs.map(({ name }, index) => ({ op: "Identity", from: [name], to: `out${index}` })),
      },
      bindings: inputs.map(({ name, dtype }) => ({ kind: "columns", input: name, dtype, columns: [name] })),
      outputs: inputs.map(({ dtype }, index) => ({
        name: `out${index}`,
        source: `out${index}`,
        type: dtype === "string" ? "utf8" : (dtype as ColumnType),
      })),
      evaluate: (features) => inputs.map(({ name }) => ({ value: features.get(name)?.[0] ?? 0 })),
      byName: true,
    },
  };
}

const matrixColumns = (dice: Dice, types: readonly ColumnType[]): WantedColumn[] =>
  Array.from({ length: dice.int(1, 12) }, (_, index) => ({ name: `f${index}`, type: dice.pick(types) }));

interface Weights {
  readonly flat: readonly number[];
  readonly bias: readonly number[];
  /** Of `outputs` sums over `width` elements. */
  readonly sums: (x: readonly Feature[]) => Prediction[];
}

/** Weights of a sum that overflows for no row. */
function weightsOf(dice: Dice, width: number, outputs: number): Weights {
  const flat = Array.from({ length: width * outputs }, () => Math.fround((dice.number() * 2 - 1) / width));
  const bias = Array.from({ length: outputs }, () => Math.fround(dice.number() - 0.5));
  return {
    flat,
    bias,
    sums: (x) =>
      bias.map((start, output) => {
        const terms = x.map((value, index) => Number(value) * (flat[index * outputs + output] ?? 0));
        const value = terms.reduce((sum, term) => sum + term, start);
        const size = terms.reduce((sum, term) => sum + Math.abs(term), Math.abs(start));
        return { value: Number.isNaN(value) ? Number.NaN : value, tolerance: size * 2e-6 + 1e-30 };
      }),
  };
}

/** The outputs of a tensor of so many elements a row: as a list, or some elements as columns. */
function outputsOf(tensor: string, outputs: number, dice: Dice): { columns: PredictedColumn[]; elements?: number[] } {
  if (outputs === 1) {
    return { columns: [{ name: tensor, source: tensor, type: "float32" }], elements: [0] };
  }
  if (dice.chance(0.4)) {
    return { columns: [{ name: tensor, source: tensor, type: { kind: "list", element: "float32" } }] };
  }
  const all = Array.from({ length: outputs }, (_, element) => element);
  const elements = dice.some(all, dice.int(1, outputs));
  const columns = elements.map(
    (element): PredictedColumn => ({ name: `score_${element}`, source: `${tensor}[${element}]`, type: "float32" }),
  );
  return { columns, elements };
}

function chosen(all: readonly Prediction[], elements: readonly number[] | undefined): readonly Prediction[] {
  return elements === undefined
    ? [
        {
          value: all.map(({ value }) => Number(value)),
          tolerance: Math.max(...all.map(({ tolerance = 0 }) => tolerance)),
        },
      ]
    : elements.map((element) => all[element] as Prediction);
}

/** A matrix times weights. */
function linearModel(dice: Dice, types: readonly ColumnType[]): ModelDraft {
  const columns = matrixColumns(dice, types);
  return {
    columns,
    model: linear(dice, columns.length, { kind: "columns", columns: columns.map(({ name }) => name) }),
  };
}

function linear(
  dice: Dice,
  width: number,
  binding: { kind: "columns"; columns: readonly string[] } | { kind: "list"; column: string; width: number },
): CaseModel {
  const rows = batchDimension(dice);
  const outputs = dice.pick([1, 1, 3]);
  const { flat, bias, sums } = weightsOf(dice, width, outputs);
  const { columns, elements } = outputsOf("score", outputs, dice);
  return {
    model: {
      inputs: [{ name: "x", dtype: "float32", shape: [rows, width] }],
      outputs: [{ name: "score", dtype: "float32", shape: [rows, outputs] }],
      nodes: [
        { op: "MatMul", from: ["x", "w"], to: "product" },
        { op: "Add", from: ["product", "b"], to: "score" },
      ],
      constants: [
        { name: "w", values: flat, shape: [width, outputs] },
        { name: "b", values: bias },
      ],
    },
    bindings: [{ ...binding, input: "x", dtype: "float32" }],
    outputs: columns,
    evaluate: (features) => chosen(sums(features.get("x") ?? []), elements),
    byName: false,
  };
}

/** A tree of one split for each column, added up: sums of few binary digits, which are exact. */
function stumpsModel(dice: Dice, types: readonly ColumnType[]): ModelDraft {
  const columns = matrixColumns(dice, types);
  const rows = batchDimension(dice);
  const some = (): number[] => columns.map(() => dice.int(-64, 64) / 64);
  const limits = columns.map(() => Math.fround(dice.pick([0, 1, 0.5, dice.int(-50, 50)])));
  const [low, high] = [some(), some()];
  const value = (x: readonly Feature[]): number =>
    limits.reduce((sum, limit, index) => sum + ((Number(x[index]) < limit ? low : high)[index] ?? 0), 0);
  return {
    columns,
    model: {
      model: {
        inputs: [{ name: "x", dtype: "float32", shape: [rows, columns.length] }],
        outputs: [{ name: "score", dtype: "float32", shape: [rows, 1] }],
        nodes: [
          { op: "Less", from: ["x", "limits"], to: "isLow" },
          { op: "Where", from: ["isLow", "low", "high"], to: "leaves" },
          { op: "MatMul", from: ["leaves", "ones"], to: "score" },
        ],
        constants: [
          { name: "limits", values: limits },
          { name: "low", values: low },
          { name: "high", values: high },
          { name: "ones", values: columns.map(() => 1), shape: [columns.length, 1] },
        ],
      },
      bindings: [{ kind: "columns", input: "x", dtype: "float32", columns: columns.map(({ name }) => name) }],
      outputs: [{ name: "score", source: "score", type: "float32" }],
      evaluate: (features) => [{ value: value(features.get("x") ?? []) }],
      byName: false,
    },
  };
}

const listTypes = ["int32", "float32", "float64"] as const;

/** A matrix times weights, from lists of one length. */
function listModel(dice: Dice): ModelDraft {
  const type: ColumnType = { kind: "list", element: dice.pick(listTypes) };
  const width = dice.int(1, 5);
  return { columns: [{ name: "x", type }], model: linear(dice, width, { kind: "list", column: "x", width }) };
}

/** The sum of what lists hold, from lists that are padded. */
function paddedModel(dice: Dice): ModelDraft {
  const type: ColumnType = { kind: "list", element: dice.pick(listTypes) };
  const width = dice.int(1, 6);
  const { flat, bias, sums } = weightsOf(dice, width, 1);
  const shape = ["N", width];
  return {
    columns: [{ name: "tokens", type }],
    model: {
      model: {
        inputs: [
          { name: "x", dtype: "float32", shape },
          { name: "mask", dtype: "float32", shape },
        ],
        outputs: [{ name: "score", dtype: "float32", shape: ["N", 1] }],
        nodes: [
          { op: "Mul", from: ["x", "mask"], to: "kept" },
          { op: "MatMul", from: ["kept", "w"], to: "sum" },
          { op: "Add", from: ["sum", "b"], to: "score" },
        ],
        constants: [
          { name: "w", values: flat, shape: [width, 1] },
          { name: "b", values: bias },
        ],
      },
      bindings: [
        {
          kind: "padded",
          input: "x",
          mask: "mask",
          dtype: "float32",
          column: "tokens",
          width,
          value: dice.pick([0, 7]),
          side: dice.pick(["left", "right"] as const),
          truncate: dice.chance(0.5),
        },
      ],
      outputs: [{ name: "score", source: "score", type: "float32" }],
      evaluate: (features) => {
        const mask = features.get("mask") ?? [];
        return sums((features.get("x") ?? []).map((value, index) => Number(value) * Number(mask[index])));
      },
      byName: false,
    },
  };
}
