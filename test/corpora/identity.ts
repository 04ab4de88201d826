import { copyFile, mkdir, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { type GraphNode, type TensorShape, writeModel } from "../support/onnx.js";
import { floatText } from "./values.js";

/** A column as `inspect --json` tells it. */
export interface SeenColumn {
  readonly name: string;
  readonly type: string;
}

/** A column that goes through the model. */
interface Feature {
  readonly column: string;
  /** Whether an output column may have its name; what may not be carried is seen as a prediction only. */
  readonly carried: boolean;
  readonly dtype: TensorShape["dtype"];
  /** NaN, which no prediction may be, comes out as 0; `model.missing: nan` makes NULL NaN. */
  readonly masked: boolean;
}

const integers = /^U?(TINYINT|SMALLINT|INTEGER|BIGINT)$/;

/** How a column can go through a model without losing a value; undefined: it holds no numbers. */
function featureOf({ name, type }: SeenColumn, hasNulls: boolean): Feature | undefined {
  const given = { column: name, carried: outputName.test(name) };
  if (type === "VARCHAR" && !given.carried) {
    return { ...given, dtype: "string", masked: false };
  }
  if (type === "FLOAT") {
    return { ...given, dtype: "float32", masked: true };
  }
  if (type === "DOUBLE" || type.startsWith("DECIMAL")) {
    return { ...given, dtype: "float64", masked: true };
  }
  if (!integers.test(type) && type !== "BOOLEAN") {
    return undefined;
  }
  if (hasNulls) {
    return { ...given, dtype: "float64", masked: true };
  }
  return { ...given, dtype: type === "BOOLEAN" ? "bool" : type === "UBIGINT" ? "uint64" : "int64", masked: false };
}

const outputName = /^[A-Za-z_][A-Za-z0-9_]{0,62}$/;

/** The prediction that a feature's value, as text, must come out as. */
function predictionOf({ masked, dtype }: Feature, text: string): string {
  if (!masked) {
    return text;
  }
  const value = ["null", "nan", "false"].includes(text) ? 0 : text === "true" ? 1 : Number(text);
  return floatText(dtype === "float32" ? Math.fround(value) : value);
}

/** `from` with 0 for NaN: IsNaN chooses between it and as many zeros. */
function masking(from: string, to: string, dtype: TensorShape["dtype"]): GraphNode[] {
  const zeros = dtype === "float32" ? `${to}_floats` : `${to}_zeros`;
  return [
    { op: "IsNaN", from: [from], to: `${to}_missing` },
    { op: "Shape", from: [from], to: `${to}_shape` },
    { op: "ConstantOfShape", from: [`${to}_shape`], to: `${to}_floats` },
    ...(dtype === "float32"
      ? []
      : [{ op: "Cast", from: [`${to}_floats`], to: zeros, attributes: { to: 11 } } satisfies GraphNode]),
    { op: "Where", from: [`${to}_missing`, zeros, from], to },
  ];
}

/** Columns of an output, each value as text. */
export type Texts = ReadonlyMap<string, readonly string[]>;

export interface IdentityJob {
  readonly spec: string;
  readonly output: string;
  /** The values of a column as they came out: as they were carried, else as the model gave them back. */
  readonly valuesOf: (column: string, texts: Texts) => readonly string[];
  /** Where a prediction is not what went in. */
  readonly wrongPredictions: (texts: Texts, rows: number) => string[];
}

export interface JobOver {
  readonly file: string;
  readonly columns: readonly SeenColumn[];
  readonly hasNulls: (column: string) => boolean;
  /** Columns to carry, also if that fails; default: those that can be carried. */
  readonly carried?: readonly string[];
}

/**
 * A job over one file: its columns are carried, those of numbers go through an identity model as well. A number
 * from the folder's name is a feature too, so that each file has at least one.
 */
export async function identityJob(folder: string, { file, columns, hasNulls, carried }: JobOver): Promise<IdentityJob> {
  const features = columns.flatMap((column) => featureOf(column, hasNulls(column.name)) ?? []);
  const name = basename(file);
  await mkdir(join(folder, "shard=7"));
  await copyFile(file, join(folder, "shard=7", name));
  await writeModel(join(folder, "model.onnx"), {
    inputs: [shape("in", "int64"), ...features.map(({ dtype }, index) => shape(`in${index}`, dtype))],
    outputs: [shape("out", "int64"), ...features.map(({ dtype }, index) => shape(`out${index}`, dtype))],
    nodes: [
      { op: "Identity", from: ["in"], to: "out" },
      ...features.flatMap(({ dtype, masked }, index): GraphNode[] =>
        masked
          ? masking(`in${index}`, `out${index}`, dtype)
          : [{ op: "Identity", from: [`in${index}`], to: `out${index}` }],
      ),
    ],
  });
  const spec = join(folder, "job.yaml");
  await writeFile(
    spec,
    JSON.stringify({
      version: 1,
      name: "identity",
      input: { path: join("shard=7", name), partitions: { shard: "int64" }, min_rows: 0 },
      model: {
        path: "model.onnx",
        missing: "nan",
        inputs: { in: ["shard"], ...Object.fromEntries(features.map(({ column }, index) => [`in${index}`, [column]])) },
      },
      engine: { threads: 1 },
      output: {
        columns: carried ?? columns.map((column) => column.name).filter((column) => outputName.test(column)),
        parquet: { path: "out" },
      },
    }),
  );
  return {
    spec,
    output: join(folder, "out"),
    valuesOf(column, texts) {
      const index = features.findIndex((feature) => feature.column === column && !feature.carried);
      return texts.get(index < 0 ? column : `out${index}`) ?? [];
    },
    wrongPredictions(texts, rows) {
      const sevens = Array.from({ length: rows }, () => "7");
      return [
        ...compared("out", texts.get("out"), sevens),
        ...features.flatMap((feature, index) => {
          if (!feature.carried) {
            return [];
          }
          const expected = texts.get(feature.column)?.map((text) => predictionOf(feature, text));
          return compared(`out${index} of ${feature.column}`, texts.get(`out${index}`), expected);
        }),
      ];
    },
  };
}

function shape(name: string, dtype: TensorShape["dtype"]): TensorShape {
  return { name, dtype, shape: ["N", 1] };
}

/** Where two columns differ, or one is not there. */
function compared(
  what: string,
  found: readonly string[] | undefined,
  expected: readonly string[] | undefined,
): string[] {
  if (found === undefined || found.length !== expected?.length) {
    return [`${what}: ${found?.length} rows, expected ${expected?.length}`];
  }
  return found.flatMap((text, row) =>
    text === expected[row] ? [] : [`${what}, row ${row}: ${text}, expected ${expected[row]}`],
  );
}
