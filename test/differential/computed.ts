import type { ColumnType } from "#src/columns/types.js";
import type { Dice } from "./dice.js";
import type { WantedColumn } from "./models.js";
import { rangeOf, type TableColumn, type Value } from "./values.js";

/** What an expression gives for a row; `failed`: it cannot be computed. */
export const failed = Symbol("failed");

type Compute = (valueOf: (column: string) => Value) => Value | typeof failed;

/** A computed column in SQL and in JavaScript. */
export interface Computed {
  readonly name: string;
  readonly sql: string;
  readonly type: ColumnType;
  readonly compute: Compute;
}

/** A row filter in SQL and in JavaScript. */
export interface Filter {
  readonly sql: string;
  readonly keeps: (valueOf: (column: string) => Value) => boolean | typeof failed;
}

/** Fails on one row in seven. */
const sometimesFails = `CAST(CASE WHEN "id" % 7 = 3 THEN 'none' ELSE '1' END AS INTEGER)`;

const nullOr =
  (name: string, then: (value: Exclude<Value, null>) => Value): Compute =>
  (valueOf) => {
    const value = valueOf(name);
    return value === null ? null : then(value);
  };

/** Some features take what is computed from the shard's column of their name; one column more may be carried. */
export function anyComputed(dice: Dice, columns: readonly TableColumn[], wanted: readonly WantedColumn[]): Computed[] {
  const features = dice.chance(0.25) ? dice.some(wanted, dice.int(0, 2)) : [];
  const found = features.flatMap(({ name, type }) => computedOver(dice, name, type) ?? []);
  const extra: Computed = {
    name: "twice",
    sql: '"id" * 2 - 1',
    type: "int64",
    compute: nullOr("id", (id) => (id as bigint) * 2n - 1n),
  };
  return dice.chance(0.2) && columns.length > 0 ? [...found, extra] : found;
}

function computedOver(dice: Dice, name: string, type: ColumnType): Computed | undefined {
  const range = rangeOf(type);
  if (dice.chance(0.2) && range !== undefined) {
    const compute: Compute = (valueOf) => ((valueOf("id") as bigint) % 7n === 3n ? failed : 1n);
    return { name, sql: sometimesFails, type: "int32", compute };
  }
  if (range !== undefined && range[1] < 2n ** 32n) {
    return {
      name,
      sql: `"${name}"::BIGINT * 2 + 1`,
      type: "int64",
      compute: nullOr(name, (value) => (value as bigint) * 2n + 1n),
    };
  }
  if (type === "float64" || type === "float32") {
    return {
      name,
      sql: `coalesce("${name}"::DOUBLE / 2, 0.25::DOUBLE)`,
      type: "float64",
      compute: (valueOf) => (valueOf(name) === null ? 0.25 : Number(valueOf(name)) / 2),
    };
  }
  return undefined;
}

export function anyFilter(dice: Dice, columns: readonly TableColumn[]): Filter {
  const filters: Filter[] = [
    { sql: '"id" % 3 <> 0', keeps: (valueOf) => (valueOf("id") as bigint) % 3n !== 0n },
    {
      sql: `${sometimesFails} = 1`,
      keeps: (valueOf) => ((valueOf("id") as bigint) % 7n === 3n ? failed : true),
    },
    { sql: "false", keeps: () => false },
  ];
  for (const { name, type } of columns) {
    filters.push({ sql: `"${name}" IS NOT NULL`, keeps: (valueOf) => valueOf(name) !== null });
    if (type === "bool") {
      filters.push({ sql: `"${name}"`, keeps: (valueOf) => valueOf(name) === true });
    }
    if (rangeOf(type) !== undefined) {
      filters.push({
        sql: `"${name}" > 5`,
        keeps: (valueOf) => valueOf(name) !== null && (valueOf(name) as bigint) > 5n,
      });
    }
  }
  return dice.pick(dice.chance(0.5) ? filters.slice(0, 2) : filters);
}
