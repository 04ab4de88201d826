import { type ColumnType, showType } from "#src/columns/types.js";
import type { Dice } from "./dice.js";
import { rangeOf, type TableColumn } from "./values.js";

/** What values of a type have in common in SQL. */
type Sort = "number" | "text" | "bool" | "date" | "time";

/** SQL for a value of a row. */
interface Term {
  readonly sql: string;
  readonly type: ColumnType;
}

const quoted = (name: string): string => `"${name.replaceAll('"', '""')}"`;

function sortOf(type: ColumnType): Sort | undefined {
  const shown = showType(type);
  if (rangeOf(type) !== undefined || /^(float|decimal)/.test(shown)) {
    return "number";
  }
  const sorts: Readonly<Record<string, Sort>> = {
    utf8: "text",
    bool: "bool",
    date32: "date",
    "timestamp[us]": "time",
    "timestamp[ns]": "time",
  };
  return sorts[shown];
}

/** A column, and what is in it: fields of structs, elements of lists. */
function termsOf({ sql, type }: Term): Term[] {
  if (typeof type === "object" && type.kind === "list") {
    return [{ sql, type }, ...termsOf({ sql: `${sql}[1]`, type: type.element })];
  }
  if (typeof type === "object" && type.kind === "struct") {
    const fields = type.fields.map((field) => termsOf({ sql: `${sql}.${quoted(field.name)}`, type: field.type }));
    return [{ sql, type }, ...fields.flat()];
  }
  return [{ sql, type }];
}

const constants: Readonly<Record<Sort, readonly string[]>> = {
  number: ["0", "1", "-1", "2", "3", "50", "0.25", "100", "'nan'::double", "'nan'::float", "'inf'::double", "255"],
  text: ["''", "'a'", "'level 3'", "'ä'", "'text 5'"],
  bool: ["true", "false"],
  date: ["DATE '1970-01-01'", "DATE '2001-02-03'", "DATE '1900-01-01'"],
  time: ["TIMESTAMP '1970-01-01'", "TIMESTAMP '2001-02-03 04:05:06.789'", "TIMESTAMP '1900-01-01'"],
};

const comparisons = ["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"];

/** Random expressions over the columns of a table. What DuckDB does not take, it refuses. */
export interface AnySql {
  /** One that is true, false or NULL. */
  condition(): string;
  /** One of any type. */
  value(): string;
}

export function anySql(dice: Dice, columns: readonly Pick<TableColumn, "name" | "type">[]): AnySql {
  return over(
    dice,
    columns.flatMap(({ name, type }) => termsOf({ sql: quoted(name), type })),
  );
}

function over(dice: Dice, terms: readonly Term[]): AnySql {
  // As many of each as there are of its terms.
  const sorts = terms.flatMap(({ type }) => sortOf(type) ?? []);
  const lists = terms.filter(({ type }) => typeof type === "object" && type.kind === "list");

  const atom = (sort: Sort): string => {
    const fitting = terms.filter(({ type }) => sortOf(type) === sort);
    return fitting.length === 0 || dice.chance(0.1) ? dice.pick(constants[sort]) : dice.pick(fitting).sql;
  };

  const condition = (depth = 0): string => {
    const deeper = (): string => condition(depth + 1);
    const sort = sorts.length === 0 ? "number" : dice.pick(sorts);
    const value = (): string => term(sort, depth + 1);
    const constant = (): string => dice.pick(constants[sort]);
    const { sql: whole } = terms.length === 0 ? { sql: "1" } : dice.pick(terms);
    return dice.pick([
      () => `${value()} ${dice.pick(comparisons)} ${constant()}`,
      () => `${value()} ${dice.pick(comparisons)} ${value()}`,
      () => `${value()} ${dice.pick(["", "NOT "])}BETWEEN ${constant()} AND ${constant()}`,
      () => `${value()} ${dice.pick(["", "NOT "])}IN (${constant()}, ${constant()}, ${value()})`,
      () => `${whole} IS ${dice.pick(["", "NOT "])}NULL`,
      () => `${whole} ${dice.pick(comparisons)} ${whole}`,
      () => (sort === "number" ? `isnan(${value()}::double)` : `${value()} = ${value()}`),
      () => (sort === "text" ? `${value()} LIKE '${dice.pick(["%e%", "t%", "%3", "_"])}'` : deeper()),
      () => (lists.length > 0 ? `list_contains(${dice.pick(lists).sql}, ${constant()})` : deeper()),
      () => (depth > 1 ? "true" : `(${deeper()}) ${dice.pick(["AND", "OR"])} (${deeper()})`),
      () => (depth > 1 ? "false" : `NOT (${deeper()})`),
    ])();
  };

  const term = (sort: Sort, depth = 0): string => {
    if (depth > 2 || dice.chance(0.4 + depth / 4)) {
      return atom(sort);
    }
    const value = (): string => term(sort, depth + 1);
    const common = [
      () => `nullif(${value()}, ${dice.pick(constants[sort])})`,
      () => `coalesce(${value()}, ${atom(sort)})`,
      () => `CASE WHEN ${condition(depth + 1)} THEN ${value()} ELSE ${value()} END`,
      () => `${dice.pick(["greatest", "least"])}(${value()}, ${value()})`,
    ];
    const special: Readonly<Record<Sort, readonly (() => string)[]>> = {
      number: [
        () => `abs(${value()})`,
        () => `-(${value()})`,
        () => `(${value()} ${dice.pick(["+", "-", "*", "/", "%"])} ${dice.pick(constants.number)})`,
        () => `(${value()})::${dice.pick(["TINYINT", "INTEGER", "FLOAT", "DOUBLE", "VARCHAR::DOUBLE"])}`,
        () => `length(${term("text", depth + 1)})`,
        () => `year(${term(dice.pick(["date", "time"] as const), depth + 1)})`,
        () => (lists.length > 0 ? `list_position(${dice.pick(lists).sql}, ${atom("number")})` : value()),
      ],
      text: [
        () => `upper(${value()})`,
        () => `${value()} || ${value()}`,
        () => `substr(${value()}, 2, 3)`,
        () => `(${term("number", depth + 1)})::VARCHAR`,
      ],
      bool: [() => condition(depth + 1)],
      date: [() => `(${term("time", depth + 1)})::DATE`, () => `${value()} + 1`],
      time: [() => `date_trunc('month', ${value()})`, () => `${value()} + INTERVAL 1 DAY`],
    };
    return dice.pick([...common, ...special[sort]])();
  };

  const list = (): string => {
    const { sql, type } = dice.pick(lists);
    const element = typeof type === "object" && type.kind === "list" ? type.element : type;
    const inside = over(dice, termsOf({ sql: "e", type: element }));
    return dice.pick([
      () => `list_transform(${sql}, lambda e: ${inside.value()})`,
      () => `list_filter(${sql}, lambda e: ${inside.condition()})`,
      () => `${dice.pick(["list_reverse", "list_min", "list_max", "len"])}(${sql})`,
    ])();
  };

  return {
    condition: () => condition(),
    value: () =>
      lists.length > 0 && dice.chance(0.25)
        ? list()
        : terms.length > 0 && dice.chance(0.1)
          ? dice.pick(terms).sql
          : dice.chance(0.4) || sorts.length === 0
            ? condition()
            : term(dice.pick(sorts)),
  };
}
