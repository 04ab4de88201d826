import { type ColumnType, showType } from "#src/columns/types.js";
import { anySql } from "./any-sql.js";
import { type CaseShard, type ShardedTable } from "./cases.js";
import { type Dice, diceOf } from "./dice.js";
import { anyType, makerOf, type TableColumn, type Value, withNulls } from "./values.js";
import { hidingNaN } from "./write-duckdb.js";
import { type Writers, writingOf } from "./writers.js";

/** A table that several writers wrote, and a job over it. */
export interface SqlCase extends ShardedTable {
  readonly shards: readonly CaseShard[];
  /** By name. */
  readonly computed: ReadonlyMap<string, string>;
  readonly where: string | undefined;
  readonly carried: readonly string[];
}

const oddNames = [
  "x",
  "f_0",
  "select",
  "A",
  "y z",
  "größe",
  'say "so"',
  "it's",
  "a.b",
  "comma,",
  "日本",
  "{b}",
  "c[1]",
];
/** What a spec carries; columns of other names are carried by an expression. */
const plainName = /^\w+$/;

function anyColumn(dice: Dice, name: string): TableColumn {
  const float = dice.pick(["float32", "float64"] as const);
  const scalar = (): ColumnType => {
    const type = dice.chance(0.7) ? float : dice.chance(0.1) ? "timestamp[ns]" : anyType(dice);
    return typeof type === "object" && type.kind === "list" ? "int32" : type;
  };
  const struct = (): ColumnType => ({
    kind: "struct",
    fields: ["a", "B c"].map((field) => ({ name: field, type: scalar() })),
  });
  const type = dice.pick([
    scalar,
    scalar,
    scalar,
    struct,
    (): ColumnType => ({ kind: "list", element: scalar() }),
    (): ColumnType => ({ kind: "list", element: struct() }),
  ])();
  const nulls = dice.pick([0, 0, 0.1, 0.5]);
  const tame = makerOf(type, "tame", dice);
  const wild = makerOf(type, "wild", dice);
  const spice = dice.pick([0, 0, 0.02, 0.5]);
  const narrow = dice.chance(0.7);
  const make = (): Value => (dice.chance(spice) ? wild() : narrow ? withNarrowFloats(tame(), type, dice) : tame());
  return { name, type, nullable: nulls > 0 || dice.chance(0.5), make: withNulls(make, nulls, dice) };
}

/** Floats of few values, so that statistics tell something; float16 holds them, too. */
function withNarrowFloats(value: Value, type: ColumnType, dice: Dice): Value {
  return eachScalar(value, type, (one, of) =>
    typeof one === "number" && of.startsWith("float") ? dice.pick([0.5, 1, 1, 2, 3, Number.NaN]) : one,
  );
}

function eachScalar(value: Value, type: ColumnType, change: (value: Value, type: string) => Value): Value {
  if (typeof type === "object" && Array.isArray(value)) {
    return value.map((one: Value, place) => {
      const inner = type.kind === "list" ? type.element : type.kind === "struct" ? type.fields[place]?.type : undefined;
      return inner === undefined ? one : eachScalar(one, inner, change);
    });
  }
  return change(value, showType(type));
}

/** @param isCarried whether an expression is one whose values can be carried */
export async function anyCase(
  seed: number,
  writers: Writers,
  isCarried: (columns: readonly TableColumn[], sql: string) => Promise<boolean>,
): Promise<SqlCase> {
  const dice = diceOf(seed);
  const rows = dice.int(1, 60);
  let next = 0n;
  const key: TableColumn = { name: "id", type: "int64", nullable: false, make: () => (next += 1n) };
  const columns = [key, ...dice.some(oddNames, dice.int(1, 5)).map((name) => anyColumn(dice, name))];
  const drawn = columns.map(({ make }) => Array.from({ length: rows }, make));
  const ends = Array.from({ length: dice.int(0, 3) }, () => dice.int(0, rows)).toSorted((one, two) => one - two);
  const shards = [...ends, rows].map((rowEnd, index): CaseShard => {
    const writing = dice.chance(0.3)
      ? ({ kind: "duckdb", ending: ".parquet", options: hidingNaN } as const)
      : writingOf(dice, writers);
    return {
      path: `data/s-${index}${writing.ending}`,
      folders: new Map(),
      rowStart: ends[index - 1] ?? 0,
      rowEnd,
      columns: dice.chance(0.3) ? dice.some([...columns.keys()], columns.length) : [...columns.keys()],
      writing,
    };
  });
  // DuckDB's result for zoned times may depend on the day of the run.
  const sql = anySql(
    dice,
    columns.slice(1).filter(({ type }) => !showType(type).includes("UTC")),
  );
  const drafts = Array.from({ length: dice.pick([0, 4, 8, 12]) }, (_, index) => [`e${index}`, sql.value()] as const);
  const computed: [string, string][] = [];
  for (const [name, text] of drafts) {
    if (await isCarried(columns, text)) {
      computed.push([name, text]);
    }
  }
  const where = dice.chance(0.6) ? sql.condition() : undefined;
  const isFiltered = where !== undefined && (await isCarried(columns, where));
  const names = columns.flatMap(({ name }) => (name !== "id" && plainName.test(name) ? [name] : []));
  return {
    columns,
    values: drawn,
    shards,
    computed: new Map(computed),
    where: isFiltered ? where : undefined,
    carried: ["id", ...computed.map(([name]) => name), ...dice.some(names, dice.int(0, names.length))],
  };
}
