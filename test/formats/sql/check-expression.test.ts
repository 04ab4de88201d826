import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openDuckDb } from "#src/duckdb/instance.js";
import { openAggregates } from "#src/formats/sql/aggregates.js";
import { checkExpression } from "#src/formats/sql/check-expression.js";
import { type ExpressionShard, openExpressionShard } from "../../support/expression-shard.js";

let shard: ExpressionShard;

beforeAll(async () => {
  shard = await openExpressionShard();
});

afterAll(async () => {
  await shard[Symbol.asyncDispose]();
});

describe("an expression of one row is accepted", () => {
  test.each([
    ["x + 1", "DOUBLE", ["x"]],
    ["ln(x) * 2 ^ id", "DOUBLE", ["x", "id"]],
    ["X > 0 AND NAME LIKE 'a%'", "BOOLEAN", ["x", "name"]],
    ['"Mixed Case" + "order"', "INTEGER", ["Mixed Case", "order"]],
    ['"MIXED CASE"', "INTEGER", ["Mixed Case"]],
    ["CASE WHEN x > 0 THEN 'p' ELSE name END", "VARCHAR", ["x", "name"]],
    ["x IS NOT NULL", "BOOLEAN", ["x"]],
    ["x BETWEEN 0 AND id", "BOOLEAN", ["x", "id"]],
    ["id IN (1, 2, 3)", "BOOLEAN", ["id"]],
    ["x IS DISTINCT FROM 1", "BOOLEAN", ["x"]],
    ["NOT (name SIMILAR TO 'a.*')", "BOOLEAN", ["name"]],
    ["name COLLATE nocase = 'A'", "BOOLEAN", ["name"]],
    ["coalesce(x, 0)", "DOUBLE", ["x"]],
    ["nullif(x, 0)", "DOUBLE", ["x"]],
    ["if(x > 0, 1, 0)", "INTEGER", ["x"]],
    ["try(ln(x))", "DOUBLE", ["x"]],
    ["x::DECIMAL(10,2)", "DECIMAL(10,2)", ["x"]],
    ["TRY_CAST(name AS INTEGER)", "INTEGER", ["name"]],
    ["amount * 2", "DECIMAL(18,2)", ["amount"]],
    ["extract(year FROM d)", "BIGINT", ["d"]],
    ["d + INTERVAL 1 DAY", "TIMESTAMP", ["d"]],
    ["date_diff('day', dt, d)", "BIGINT", ["dt", "d"]],
    ["age(ts, ts)", "INTERVAL", ["ts"]],
    ["ts AT TIME ZONE 'Europe/Berlin'", "TIMESTAMP WITH TIME ZONE", ["ts"]],
    ["strptime(name, '%Y')", "TIMESTAMP", ["name"]],
    ["regexp_extract(name, '(a)(b)?', 1)", "VARCHAR", ["name"]],
    ["substring(name FROM 1 FOR 2) || 'x'", "VARCHAR", ["name"]],
    ["split_part(name, '-', 1)", "VARCHAR", ["name"]],
    ["s.a", "INTEGER", ["s"]],
    ["s.filename", "VARCHAR", ["s"]],
    ["(s).a + s['a']", "INTEGER", ["s"]],
    ["l[1]", "INTEGER", ["l"]],
    ["l[1:2]", "INTEGER[]", ["l"]],
    ["len(l)", "BIGINT", ["l"]],
    ["list_sum(l)", "HUGEINT", ["l"]],
    ["list_aggregate(l, 'max')", "INTEGER", ["l"]],
    ["array_to_string(l, ',')", "VARCHAR", ["l"]],
    ["list_transform(l, lambda q: q + x)", "DOUBLE[]", ["l", "x"]],
    ["list_filter(l, q -> q > 1)", "INTEGER[]", ["l"]],
    ["list_reduce(l, lambda a, b: a + b)", "INTEGER", ["l"]],
    ["list_transform(l, (q, i) -> q * i)", "BIGINT[]", ["l"]],
    ["[q + 1 for q in l if q > 1]", "INTEGER[]", ["l"]],
    ["js ->> '$.k'", "VARCHAR", ["js"]],
    ["tags['k']", "INTEGER", ["tags"]],
    ["{'a': x, 'b': [id]}", 'STRUCT("a" DOUBLE, "b" BIGINT[])', ["x", "id"]],
    ["main.lower(name)", "VARCHAR", ["name"]],
    ["hash(name)", "UBIGINT", ["name"]],
    ["repeat(name, 3) || len(range(id))", "VARCHAR", ["name", "id"]],
    ["formatReadableSize(id)", "VARCHAR", ["id"]],
    ["42", "INTEGER", []],
    ["x -- why", "DOUBLE", ["x"]],
    ["x /* why */ + /* -- */ 1", "DOUBLE", ["x"]],
    ["$$it's$$", "VARCHAR", []],
    ["E'it\\'s'", "VARCHAR", []],
    ["\u00a0x\u2003+\u00a01", "DOUBLE", ["x"]],
  ])("%s", async (text, sourceType, uses) => {
    expect(await shard.bind(text)).toMatchObject({ sourceType, uses });
  });

  test("an expression of one row may have a column on the left of an arrow, for a key or a lambda", async () => {
    expect((await shard.bind("js -> '$.k'")).uses).toEqual(["js"]);
    expect((await shard.bind("(s.a::VARCHAR) -> '$'")).uses).toEqual(["s"]);
    expect((await shard.bind("list_transform(l, x -> x + 1)")).uses).toEqual(["l", "x"]);
  });

  test("an expression of one row may have a type that cannot be carried, which the caller refuses", async () => {
    expect((await shard.bind("tags")).type).toBeUndefined();
    expect((await shard.bind("id::HUGEINT")).type).toBeUndefined();
  });
});

describe("what is no single expression is refused", () => {
  test("a text that is not a single expression is refused with code, message and hint", async () => {
    expect(await shard.refusedAs("sum(x) OVER ()")).toMatchInlineSnapshot(`
      "64 SPEC_INVALID
      checking the expression sum(x) OVER (): it has a window function
      hint: an expression is computed for each row by itself: columns of the shard, constants, operators, CASE, casts, and functions that depend on their arguments alone"
    `);
  });

  test("more than one statement, SELECT or item", async () => {
    await shard.expectFindings([
      ["1; SELECT 2", "it is more than one statement"],
      ["x; DROP TABLE t", "it is more than a SELECT"],
      ["x;", 'syntax error at or near ";"'],
      ["1 UNION SELECT 2", "it is more than one SELECT"],
      ["x, id", "it is a list of 2 expressions"],
      ["", "SELECT clause without selection list"],
      [" ", "SELECT clause without selection list"],
      ["-- nothing", "SELECT clause without selection list"],
    ]);
  });

  test("what a SELECT has besides its list", async () => {
    await shard.expectFindings([
      ["x FROM range(3)", "it has a FROM clause"],
      ["secret FROM 'other.parquet'", "it has a FROM clause"],
      ["x WHERE true", "it has a WHERE clause"],
      ["x GROUP BY x", "it has a GROUP BY clause"],
      ["x HAVING true", "it has a HAVING clause"],
      ["x QUALIFY true", "it has a QUALIFY clause"],
      ["x USING SAMPLE 1", "it has a USING SAMPLE clause"],
      ["x ORDER BY x", "it has a DISTINCT, ORDER BY or LIMIT clause"],
      ["x LIMIT 1", "it has a DISTINCT, ORDER BY or LIMIT clause"],
      ["DISTINCT x", "it has a DISTINCT, ORDER BY or LIMIT clause"],
      ["DISTINCT ON (x) x", "it has a DISTINCT, ORDER BY or LIMIT clause"],
      ["x AS y", "it ends with a name of its own, y"],
      ["x y", "it ends with a name of its own, y"],
      ["y: x", "it ends with a name of its own, y"],
    ]);
  });

  test("parentheses, quotes and comments that end elsewhere", async () => {
    await shard.expectFindings([
      ["x) + (x", 'syntax error at or near ")"'],
      ["1) UNION SELECT (2", 'syntax error at or near ")"'],
      ["x)) AS v, (SELECT secret FROM 'other.parquet'", 'syntax error at or near ")"'],
      ["x /*", 'unterminated /* comment at or near "/*'],
      ["x */", "there is no function `*/__postfix`; did you mean `!__postfix`?"],
      ["'open", "unterminated quoted string at or near \"'open"],
      ['"open', 'unterminated quoted identifier at or near ""open'],
      ["$$open", 'unterminated dollar-quoted string at or near "$$open'],
      ["$a$open$b$", 'unterminated dollar-quoted string at or near "$a$open$b$'],
      ["‘x’", "the shard has no column `‘x’`"],
      ["“x”", "the shard has no column `“x”`"],
      ["`x`", "there is no function ``__postfix`; did you mean `!__postfix`?"],
      ["x\0", "it has a character of code 0"],
      ["x\0) FROM t --", "it has a character of code 0"],
    ]);
  });

  test("other statements", async () => {
    await shard.expectFindings([
      ["DELETE FROM t", "it has a FROM clause"],
      ["SET threads = 1", 'syntax error at or near "="'],
      ["PRAGMA version", 'syntax error at or near "version"'],
      ["SELECT 1", 'syntax error at or near "SELECT"'],
      ["COPY t TO 'f'", 'syntax error at or near "TO"'],
      ["FROM t", "SELECT clause without selection list"],
    ]);
  });

  test("an expression that is longer than any written by hand", async () => {
    await shard.expectFindings([[`x${" + x".repeat(3000)}`, "it has more than 10000 characters"]]);
  });
});

describe("what needs more than one row is refused", () => {
  test("aggregates, windows, subqueries, functions of several rows", async () => {
    await shard.expectFindings([
      ["sum(x)", "`sum` is an aggregate, which is computed over many rows"],
      ["count(*)", "`count` is an aggregate, which is computed over many rows"],
      ["count()", "`count` is an aggregate, which is computed over many rows"],
      ["first(x)", "`first` is an aggregate, which is computed over many rows"],
      ["sum(x) FILTER (x > 1)", "`sum` is an aggregate, which is computed over many rows"],
      ["list_transform(l, q -> sum(q))", "`sum` is an aggregate, which is computed over many rows"],
      ["coalesce(NULL, max(x))", "`max` is an aggregate, which is computed over many rows"],
      ["geomean(x)", "`geomean` does not depend on its arguments alone"],
      ["grouping(x)", "it has `grouping`, which is computed over many rows"],
      ["row_number() OVER ()", "it has a window function"],
      ["lower(name) OVER ()", "it has a window function"],
      ["(SELECT 1)", "it has a subquery"],
      ["x IN (SELECT 1)", "it has a subquery"],
      ["EXISTS (SELECT 1)", "it has a subquery"],
      ["x = ANY (l)", "it has a subquery"],
      ["CASE WHEN x > 0 THEN (SELECT secret FROM 'other.parquet') END", "it has a subquery"],
      ["unnest(l)", "`unnest` gives a table, not a value"],
      ["generate_subscripts(l, 1)", "`generate_subscripts` does not depend on its arguments alone"],
      ["regexp_split_to_table(name, '-')", "`regexp_split_to_table` does not depend on its arguments alone"],
    ]);
  });

  test("several columns, columns by number, placeholders", async () => {
    await shard.expectFindings([
      ["*", "it has a `*`"],
      ["s.*", "it has a `*`"],
      ["COLUMNS(*)", "it has a `*`"],
      ["coalesce(*COLUMNS('x|id'))", "it has a `*`"],
      ["#1", "it has a column by its number"],
      ["$1", "it has a placeholder for a value"],
      ["?", "it has a placeholder for a value"],
      ["$name", "it has a placeholder for a value"],
      ["DEFAULT", "it has the word DEFAULT"],
    ]);
  });
});

/**
 * Each function was looked at, and called under two clocks and environments where it can be called: what a new
 * release of DuckDB adds must be looked at too.
 */
test("the functions that may be called are those that were reviewed", async () => {
  const duckdb = await openDuckDb({ threads: 1, allowed: {} });
  const connection = await duckdb.connect();
  const found = await connection.runAndReadAll(
    `SELECT function_name, bool_or(function_type = 'macro') FROM duckdb_functions()
     WHERE function_type IN ('scalar', 'macro') AND function_name NOT LIKE 'icu_collate_%' GROUP BY 1 ORDER BY 1`,
  );
  const told = { scalars: [] as string[], macros: [] as string[], refused: [] as string[] };
  for (const [name, isMacro] of found.getRows()) {
    const call = `"${String(name)}"(1, 2)`;
    const taken = await checkExpression(connection, call).then(
      () => true,
      () => false,
    );
    told[taken ? (isMacro === true ? "macros" : "scalars") : "refused"].push(String(name));
  }
  connection.closeSync();
  duckdb[Symbol.dispose]();
  expect(told).toMatchSnapshot();
});

const columns = [
  { name: "id", type: "int32" },
  { name: "k", type: "utf8" },
  { name: "score", type: "float32" },
] as const;

test.each([
  ["1 > 0", "it has no aggregate"],
  ["score > 1", "`score` is not inside"],
  ["avg(score) > id", "`id` is not inside count, sum, avg, min or max"],
  ["avg(score)", "the condition is DOUBLE, expected BOOLEAN"],
  ["avg(scores) > 1", "there is no output column `scores`; did you mean `score`?"],
  ["avg(x) > 1", "there is no output column `x`"],
  ["sum(k) > 1", "`sum` has type VARCHAR, expected a number or BOOLEAN"],
  ["avg(sum(score)) > 1", "`sum` is an aggregate"],
  ["count(distinct k) > 1", "`count` has DISTINCT, which checks.sql does not support"],
  ["count(*) filter (where score > 1) > 1", "`count` has FILTER, which checks.sql does not support"],
  ["infer_batch_aggregate_0 > 1 and count(*) > 1", "names that begin with infer_batch_aggregate_"],
  ["avg(score) > getvariable('a')", "checking the expression (… > getvariable('a')): `getvariable`"],
  ["stddev(score) > 1", "`stddev` is an aggregate"],
  ["avg(random()) > 1", "`random` does not depend on its arguments alone"],
  ["count(*) > (select 1)", "it has a subquery"],
  ["avg(score) over () > 1", "it has a window function"],
  ["count(*) > 1; drop table x", "it is more than a SELECT"],
  ["count(*) > 1) from read_text('/etc/passwd') where (true", "syntax error"],
  [Array.from({ length: 33 }, (_, index) => `sum(id+${index})=0`).join(" and "), "33 different arguments, at most 32"],
])("a condition of checks.sql that cannot be checked is refused: %s", async (one, message) => {
  const opened = openAggregates({ one }, { columns, timezone: "UTC", memoryBytes: 64 * 1024 ** 2 });
  await expect(opened).rejects.toMatchObject({ code: "SPEC_INVALID", message: expect.stringContaining(message) });
});
