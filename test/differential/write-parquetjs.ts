import { type ParquetFieldOptions, ParquetSchema, ParquetWriter } from "parquetjs-lite";
import type { ColumnType } from "#src/columns/types.js";
import type { Dice } from "./dice.js";
import type { TableColumn, Value } from "./values.js";

const types: Partial<Record<string, ParquetFieldOptions["type"]>> = {
  int16: "INT_16",
  int32: "INT_32",
  int64: "INT_64",
  float32: "FLOAT",
  float64: "DOUBLE",
  bool: "BOOLEAN",
  utf8: "UTF8",
};

const typeOf = (type: ColumnType): ParquetFieldOptions["type"] | undefined =>
  typeof type === "string" ? types[type] : undefined;

/** Whether parquetjs-lite writes these values as they are: it has no NaN, no -0, and integers of 53 bits. */
export function canParquetJs(columns: readonly TableColumn[], values: readonly (readonly Value[])[]): boolean {
  return columns.every(
    ({ type }, index) =>
      typeOf(type) !== undefined &&
      (values[index] ?? []).every((value) =>
        typeof value === "number"
          ? Number.isFinite(value) && !Object.is(value, -0)
          : typeof value !== "bigint" || Number.isSafeInteger(Number(value)),
      ),
  );
}

export interface ParquetJsOptions {
  readonly compression: "UNCOMPRESSED" | "GZIP" | "SNAPPY";
  readonly rowGroupSize: number;
  readonly pageSize: number;
  readonly useDataPageV2: boolean;
}

export function parquetJsOptions(dice: Dice): ParquetJsOptions {
  return {
    compression: dice.pick(["UNCOMPRESSED", "GZIP", "SNAPPY"] as const),
    rowGroupSize: dice.pick([100, 4096]),
    pageSize: dice.pick([10, 8192]),
    useDataPageV2: dice.chance(0.5),
  };
}

/** Writes rows through parquetjs-lite; columns without NULLs are required ones. */
export async function writeByParquetJs(
  path: string,
  columns: readonly TableColumn[],
  values: readonly (readonly Value[])[],
  { compression, ...sizes }: ParquetJsOptions,
): Promise<void> {
  const fields = columns.map(({ name, type, nullable }) => {
    const options: ParquetFieldOptions = {
      type: typeOf(type) ?? "UTF8",
      optional: nullable,
      compression,
      statistics: false,
    };
    return [name, options] as const;
  });
  const writer = await ParquetWriter.openFile(new ParquetSchema(Object.fromEntries(fields)), path, sizes);
  const rows = values[0]?.length ?? 0;
  for (let row = 0; row < rows; row += 1) {
    const entries = columns.map(({ name }, index) => [name, values[index]?.[row] ?? undefined] as const);
    await writer.appendRow(Object.fromEntries(entries.filter(([, value]) => value !== undefined)));
  }
  await writer.close();
}
