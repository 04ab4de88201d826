import { DuckDBDecimalType, DuckDBListType, DuckDBStructType, type DuckDBType, DuckDBTypeId } from "@duckdb/node-api";
import { JobError, messageOf } from "../util/errors.js";
import type { DuckDBConnection } from "./instance.js";
import { firstLine, quoteName } from "./sql.js";

/** A column of the key of two tables, with the type that its values are compared as. */
export interface KeyColumn {
  readonly name: string;
  /** SQL of its values in either table. */
  readonly sql: string;
  /** Its types, if the tables have it with two. */
  readonly differ?: readonly [a: string, b: string];
}

/**
 * Finds the types that the key columns of the tables `a` and `b` share. @throws JobError USAGE if values that differ would
 * be equal as values of such a type
 */
export async function sharedKey(connection: DuckDBConnection, key: readonly string[]): Promise<readonly KeyColumn[]> {
  const names = key.map(quoteName).join(", ");
  const typesOf = async (sql: string): Promise<readonly DuckDBType[]> =>
    (await connection.run(`${sql} LIMIT 0`)).columnTypes();
  const ofA = await typesOf(`SELECT ${names} FROM a`);
  const ofB = await typesOf(`SELECT ${names} FROM b`);
  const shared = await typesOf(`SELECT ${names} FROM a UNION ALL SELECT ${names} FROM b`);
  return key.map((name, index) => {
    const [a, b, both] = [ofA[index], ofB[index], shared[index]] as [DuckDBType, DuckDBType, DuckDBType];
    const sql = quoteName(name);
    if (String(a) === String(b)) {
      return { name, sql };
    }
    const column = { name, sql: `CAST(${sql} AS ${String(both)})`, differ: [String(a), String(b)] } as const;
    const reason = reasonAgainst(a, both) ?? reasonAgainst(b, both);
    if (reason !== undefined) {
      throw new JobError("USAGE", `comparing the rows: ${showTypes(column)}: ${reason}`, { hint });
    }
    return column;
  });
}

const hint = "compare tables or folders in which it has the same type, or name other columns with --key";

function showTypes({ name, differ: [a, b] = ["", ""] }: KeyColumn): string {
  return `key column ${name} is ${a} in A and ${b} in B`;
}

/** Why values of a type cannot be compared as those of another one; undefined: they can. */
function reasonAgainst(from: DuckDBType, to: DuckDBType): string | undefined {
  if (from instanceof DuckDBListType && to instanceof DuckDBListType) {
    return reasonAgainst(from.valueType, to.valueType);
  }
  if (from instanceof DuckDBStructType && to instanceof DuckDBStructType) {
    return from.entryTypes
      .map((type, index) => reasonAgainst(type, to.entryTypes[index] ?? type))
      .find((reason) => reason !== undefined);
  }
  if (isFloat(from) && to.typeId === DuckDBTypeId.VARCHAR) {
    return "equal numbers may have different texts";
  }
  const isRounded =
    isFloat(to) && !isFloat(from)
      ? (exactBits.get(from.typeId) ?? Number.POSITIVE_INFINITY) > (to.typeId === DuckDBTypeId.FLOAT ? 24 : 53)
      : to instanceof DuckDBDecimalType && scaleOf(from) > to.scale;
  return isRounded ? "keys that differ would be rounded to one" : undefined;
}

/** Bits of the integers of a type. */
const exactBits: ReadonlyMap<DuckDBTypeId, number> = new Map([
  [DuckDBTypeId.TINYINT, 8],
  [DuckDBTypeId.UTINYINT, 8],
  [DuckDBTypeId.SMALLINT, 16],
  [DuckDBTypeId.USMALLINT, 16],
  [DuckDBTypeId.INTEGER, 32],
  [DuckDBTypeId.UINTEGER, 32],
]);

function isFloat({ typeId }: DuckDBType): boolean {
  return typeId === DuckDBTypeId.FLOAT || typeId === DuckDBTypeId.DOUBLE;
}

function scaleOf(type: DuckDBType): number {
  return type instanceof DuckDBDecimalType ? type.scale : 0;
}

/** Runs `work` on keys. @throws JobError USAGE where a value of a key cannot be converted to the type that both share */
export async function convertingKeys<T>(columns: readonly KeyColumn[], work: () => Promise<T>): Promise<T> {
  const converted = columns.filter(({ differ }) => differ !== undefined);
  try {
    return await work();
  } catch (error) {
    const said = firstLine(messageOf(error));
    if (converted.length === 0 || !said.startsWith("Conversion Error")) {
      throw error;
    }
    const types = converted.map(showTypes).join(", ");
    throw new JobError("USAGE", `comparing the rows: ${types}: ${said}`, { hint, cause: error });
  }
}
