import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { SourceColumn } from "#src/batch/types.js";
import { checkExpression } from "#src/decode/check-expression.js";
import { openParquetDecoder } from "#src/decode/parquet.js";
import type { Decoder } from "#src/decode/port.js";
import { type DuckDb, openDuckDb } from "#src/duckdb/instance.js";
import { refusalOf } from "../support/faulty.js";
import { scratchFolder } from "../support/job.js";
import { writeRows } from "../support/parquet.js";

const shard = `SELECT 7::BIGINT AS id, 0.5::DOUBLE AS x, 'a' AS name, DATE '2026-01-31' AS d,
  TIMESTAMP '2026-01-31 12:00' AS ts, [1, 2] AS l, {'a': 1, 'filename': 'f'} AS s, '{"k": 1}' AS js,
  '10:00:00+00'::TIMETZ AS tz, [{'t': '10:00:00+00'::TIMETZ}] AS tzs, 1 AS "Mixed Case", 2 AS "order",
  NULL::DECIMAL(9,2) AS amount, MAP {'k': 1} AS tags`;

let scratch: Awaited<ReturnType<typeof scratchFolder>>;
let decoder: Decoder;
let columns: readonly SourceColumn[];
let path: string;

beforeAll(async () => {
  scratch = await scratchFolder();
  path = join(scratch.path, "a.parquet");
  await writeRows(path, shard);
  await writeRows(join(scratch.path, "other.parquet"), "SELECT 1 AS secret");
  decoder = await openParquetDecoder({ threads: 1, folders: [scratch.path], timezone: "Europe/Berlin" });
  for await (const { schema } of decoder.footers([path])) {
    const folder: SourceColumn = { name: "dt", sourceType: "DATE", type: "date32", partition: true };
    columns = [...schema.columns, folder];
  }
});

afterAll(async () => {
  await decoder[Symbol.asyncDispose]();
  await scratch[Symbol.asyncDispose]();
});

const bind = (text: string): ReturnType<Decoder["bindExpression"]> =>
  decoder.bindExpression({ path, text, columns, partitions: new Map([["dt", "2026-01-31"]]) });

/** Exit code, code, message and hint without the file's folder. */
const refusedAs = async (text: string): Promise<string> =>
  (await refusalOf(bind(text))).replaceAll(scratch.path, "<folder>");

/** What is found wrong with each of some expressions, a line each; they share code and hint. */
async function findings(texts: readonly string[]): Promise<string> {
  const lines: string[] = [];
  for (const text of texts) {
    const said = await refusedAs(text);
    expect(said, text).toMatch(/^64 SPEC_INVALID\n(checking|binding) the expression .*\nhint: \w/);
    lines.push(
      said
        .split("\n")
        .slice(1, -1)
        .join("\n")
        .replace(/^(checking|binding) the expression /, ""),
    );
  }
  return `\n${lines.join("\n")}\n`;
}

describe("an expression of one row is taken", () => {
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
    expect(await bind(text)).toMatchObject({ sourceType, uses });
  });

  test("with the column of an arrow's left side, be it a key's or a lambda's", async () => {
    expect((await bind("js -> '$.k'")).uses).toEqual(["js"]);
    expect((await bind("(s.a::VARCHAR) -> '$'")).uses).toEqual(["s"]);
    expect((await bind("list_transform(l, x -> x + 1)")).uses).toEqual(["l", "x"]);
  });

  test("with a type that is not carried, which is for the caller to refuse", async () => {
    expect((await bind("tags")).type).toBeUndefined();
    expect((await bind("id::HUGEINT")).type).toBeUndefined();
  });
});

describe("what is no single expression is refused", () => {
  test("with code, message and hint", async () => {
    expect(await refusedAs("sum(x) OVER ()")).toMatchInlineSnapshot(`
      "64 SPEC_INVALID
      checking the expression sum(x) OVER (): it has a window function
      hint: an expression is computed for each row by itself: columns of the shard, constants, operators, CASE, casts, and functions that depend on their arguments alone"
    `);
  });

  test("more than one statement, SELECT or item", async () => {
    const texts = ["1; SELECT 2", "x; DROP TABLE t", "x;", "1 UNION SELECT 2", "x, id", "", " ", "-- nothing"];
    expect(await findings(texts)).toMatchInlineSnapshot(`
      "
      1; SELECT 2: it is more than one statement
      x; DROP TABLE t: it is more than a SELECT
      x;: syntax error at or near ";"
      1 UNION SELECT 2: it is more than one SELECT
      x, id: it is a list of 2 expressions
      : SELECT clause without selection list
       : SELECT clause without selection list
      -- nothing: SELECT clause without selection list
      "
    `);
  });

  test("what a SELECT has besides its list", async () => {
    const texts = [
      "x FROM range(3)",
      "secret FROM 'other.parquet'",
      "x WHERE true",
      "x GROUP BY x",
      "x HAVING true",
      "x QUALIFY true",
      "x USING SAMPLE 1",
      "x ORDER BY x",
      "x LIMIT 1",
      "DISTINCT x",
      "DISTINCT ON (x) x",
      "x AS y",
      "x y",
      "y: x",
    ];
    expect(await findings(texts)).toMatchInlineSnapshot(`
      "
      x FROM range(3): it has a FROM clause
      secret FROM 'other.parquet': it has a FROM clause
      x WHERE true: it has a WHERE clause
      x GROUP BY x: it has a GROUP BY clause
      x HAVING true: it has a HAVING clause
      x QUALIFY true: it has a QUALIFY clause
      x USING SAMPLE 1: it has a USING SAMPLE clause
      x ORDER BY x: it has a DISTINCT, ORDER BY or LIMIT clause
      x LIMIT 1: it has a DISTINCT, ORDER BY or LIMIT clause
      DISTINCT x: it has a DISTINCT, ORDER BY or LIMIT clause
      DISTINCT ON (x) x: it has a DISTINCT, ORDER BY or LIMIT clause
      x AS y: it ends with a name of its own, y
      x y: it ends with a name of its own, y
      y: x: it ends with a name of its own, y
      "
    `);
  });

  test("parentheses, quotes and comments that end elsewhere", async () => {
    const texts = [
      "x) + (x",
      "1) UNION SELECT (2",
      "x)) AS v, (SELECT secret FROM 'other.parquet'",
      "x /*",
      "x */",
      "'open",
      '"open',
      "$$open",
      "$a$open$b$",
      "‘x’",
      "“x”",
      "`x`",
      "x\0",
      "x\0) FROM t --",
    ];
    expect(await findings(texts)).toMatchInlineSnapshot(`
      "
      x) + (x: syntax error at or near ")"
      1) UNION SELECT (2: syntax error at or near ")"
      x)) AS v, (SELECT secret FROM 'other.parquet': syntax error at or near ")"
      x /*: unterminated /* comment at or near "/*
      x */: there is no function \`*/__postfix\`; did you mean \`!__postfix\`?
      'open: unterminated quoted string at or near "'open
      "open: unterminated quoted identifier at or near ""open
      $$open: unterminated dollar-quoted string at or near "$$open
      $a$open$b$: unterminated dollar-quoted string at or near "$a$open$b$
      ‘x’: the shard has no column \`‘x’\`
      “x”: the shard has no column \`“x”\`
      \`x\`: there is no function \`\`__postfix\`; did you mean \`!__postfix\`?
      x␀: it has a character of code 0
      x␀) FROM t --: it has a character of code 0
      "
    `);
  });

  test("other statements", async () => {
    const texts = ["DELETE FROM t", "SET threads = 1", "PRAGMA version", "SELECT 1", "COPY t TO 'f'", "FROM t"];
    expect(await findings(texts)).toMatchInlineSnapshot(`
      "
      DELETE FROM t: it has a FROM clause
      SET threads = 1: syntax error at or near "="
      PRAGMA version: syntax error at or near "version"
      SELECT 1: syntax error at or near "SELECT"
      COPY t TO 'f': syntax error at or near "TO"
      FROM t: SELECT clause without selection list
      "
    `);
  });

  test("more text than anybody writes", async () => {
    expect(await findings([`x${" + x".repeat(3000)}`])).toMatchInlineSnapshot(`
      "
      x + x + x + x + x + x + x + x + x + x + x + x + x + x + x…: it has more than 10000 characters
      "
    `);
  });
});

describe("what needs more than one row is refused", () => {
  test("aggregates, windows, subqueries, functions of several rows", async () => {
    const texts = [
      "sum(x)",
      "count(*)",
      "count()",
      "first(x)",
      "sum(x) FILTER (x > 1)",
      "list_transform(l, q -> sum(q))",
      "coalesce(NULL, max(x))",
      "geomean(x)",
      "grouping(x)",
      "row_number() OVER ()",
      "lower(name) OVER ()",
      "(SELECT 1)",
      "x IN (SELECT 1)",
      "EXISTS (SELECT 1)",
      "x = ANY (l)",
      "CASE WHEN x > 0 THEN (SELECT secret FROM 'other.parquet') END",
      "unnest(l)",
      "generate_subscripts(l, 1)",
      "regexp_split_to_table(name, '-')",
    ];
    expect(await findings(texts)).toMatchInlineSnapshot(`
      "
      sum(x): \`sum\` is an aggregate, which is of many rows
      count(*): \`count\` is an aggregate, which is of many rows
      count(): \`count\` is an aggregate, which is of many rows
      first(x): \`first\` is an aggregate, which is of many rows
      sum(x) FILTER (x > 1): \`sum\` is an aggregate, which is of many rows
      list_transform(l, q -> sum(q)): \`sum\` is an aggregate, which is of many rows
      coalesce(NULL, max(x)): \`max\` is an aggregate, which is of many rows
      geomean(x): \`geomean\` does not depend on its arguments alone
      grouping(x): it has \`grouping\`, which is of many rows
      row_number() OVER (): it has a window function
      lower(name) OVER (): it has a window function
      (SELECT 1): it has a subquery
      x IN (SELECT 1): it has a subquery
      EXISTS (SELECT 1): it has a subquery
      x = ANY (l): it has a subquery
      CASE WHEN x > 0 THEN (SELECT secret FROM 'other.parquet')…: it has a subquery
      unnest(l): \`unnest\` gives a table, not a value
      generate_subscripts(l, 1): \`generate_subscripts\` does not depend on its arguments alone
      regexp_split_to_table(name, '-'): \`regexp_split_to_table\` does not depend on its arguments alone
      "
    `);
  });

  test("several columns, columns by number, placeholders", async () => {
    const texts = ["*", "s.*", "COLUMNS(*)", "coalesce(*COLUMNS('x|id'))", "#1", "$1", "?", "$name", "DEFAULT"];
    expect(await findings(texts)).toMatchInlineSnapshot(`
      "
      *: it has a \`*\`
      s.*: it has a \`*\`
      COLUMNS(*): it has a \`*\`
      coalesce(*COLUMNS('x|id')): it has a \`*\`
      #1: it has a column by its number
      $1: it has a placeholder for a value
      ?: it has a placeholder for a value
      $name: it has a placeholder for a value
      DEFAULT: it has the word DEFAULT
      "
    `);
  });
});

describe("what depends on more than the row is refused", () => {
  test("the clock", async () => {
    const texts = [
      "now()",
      "today()",
      "current_date",
      "Current_Timestamp",
      "current_time",
      "localtime",
      "localtimestamp",
      "current_date()",
      "current_localtime()",
      "get_current_timestamp()",
      "age(ts)",
      "age(ts) + age(ts, ts)",
      "age(ts, ts) + age(ts)",
      "age(age(ts) + ts, ts)",
      "ago(INTERVAL 1 DAY)",
      "pg_postmaster_start_time()",
      "d < current_date",
      "('\"' || current_date::VARCHAR || '\"') -> '$'",
      "current_timestamp -> '$'",
    ];
    expect(await findings(texts)).toMatchInlineSnapshot(`
      "
      now(): \`now\` does not depend on its arguments alone
      today(): \`today\` does not depend on its arguments alone
      current_date: \`current_date\` does not depend on the row alone
      Current_Timestamp: \`Current_Timestamp\` does not depend on the row alone
      current_time: \`current_time\` does not depend on the row alone
      localtime: \`localtime\` does not depend on the row alone
      localtimestamp: \`localtimestamp\` does not depend on the row alone
      current_date(): \`current_date\` does not depend on its arguments alone
      current_localtime(): \`current_localtime\` does not depend on its arguments alone
      get_current_timestamp(): \`get_current_timestamp\` does not depend on its arguments alone
      age(ts): \`age\` does not depend on its arguments alone
      age(ts) + age(ts, ts): \`age\` does not depend on its arguments alone
      age(ts, ts) + age(ts): \`age\` does not depend on its arguments alone
      age(age(ts) + ts, ts): \`age\` does not depend on its arguments alone
      ago(INTERVAL 1 DAY): \`ago\` does not depend on its arguments alone
      pg_postmaster_start_time(): \`pg_postmaster_start_time\` does not depend on its arguments alone
      d < current_date: \`current_date\` does not depend on the row alone
      ('"' || current_date::VARCHAR || '"') -> '$': \`current_date\` does not depend on the row alone
      current_timestamp -> '$': it has \`current_timestamp\` before an arrow, where it may be a value of the session
      "
    `);
  });

  test("the offset of today, which DuckDB gives a time that has none", async () => {
    const texts = [
      "name::TIMETZ",
      "TIMETZ '10:00:00'",
      "TRY_CAST([name] AS TIME WITH TIME ZONE[])",
      "name::STRUCT(t TIMETZ)",
      "tz AT TIME ZONE 'Australia/Sydney'",
      "tz < '10:00:00'",
      "tzs[1]",
    ];
    expect(await findings(texts)).toMatchInlineSnapshot(`
      "
      name::TIMETZ: it has a cast to TIME WITH TIME ZONE, whose offset is today's
      TIMETZ '10:00:00': it has a cast to TIME WITH TIME ZONE, whose offset is today's
      TRY_CAST([name] AS TIME WITH TIME ZONE[]): it has a cast to TIME WITH TIME ZONE, whose offset is today's
      name::STRUCT(t TIMETZ): it has a cast to TIME WITH TIME ZONE, whose offset is today's
      tz AT TIME ZONE 'Australia/Sydney': column \`tz\` is TIME WITH TIME ZONE
      tz < '10:00:00': column \`tz\` is TIME WITH TIME ZONE
      tzs[1]: column \`tzs\` is STRUCT("t" TIME WITH TIME ZONE)[]
      "
    `);
  });

  test("chance", async () => {
    const texts = [
      "random()",
      "CASE WHEN x > 0 THEN random() ELSE 0 END",
      "list_transform(l, lambda q: q + random())",
      "uuid()",
      "gen_random_uuid()",
      "setseed(0.5)",
    ];
    expect(await findings(texts)).toMatchInlineSnapshot(`
      "
      random(): \`random\` does not depend on its arguments alone
      CASE WHEN x > 0 THEN random() ELSE 0 END: \`random\` does not depend on its arguments alone
      list_transform(l, lambda q: q + random()): \`random\` does not depend on its arguments alone
      uuid(): \`uuid\` does not depend on its arguments alone
      gen_random_uuid(): \`gen_random_uuid\` does not depend on its arguments alone
      setseed(0.5): \`setseed\` does not depend on its arguments alone
      "
    `);
  });

  test("settings, variables, the session, the program", async () => {
    const texts = [
      "current_setting('TimeZone')",
      "\"CURRENT_SETTING\"('TimeZone')",
      "getvariable('v')",
      "getenv('HOME')",
      "version()",
      "user",
      "current_user",
      "session_user -> '$'",
      "current_schema",
      "current_database()",
      "pg_catalog.current_database()",
      "current_query()",
      "current_connection_id()",
      "txid_current()",
      "nextval('s')",
      "stats(x)",
      "error('x')",
      "write_log('x')",
      "sleep_ms(1)",
      "pg_sleep(1)",
      "in_search_path('a', 'b')",
      "pg_get_constraintdef(1)",
      "get_block_size('memory')",
      "__internal_decompress_string(id)",
    ];
    expect(await findings(texts)).toMatchInlineSnapshot(`
      "
      current_setting('TimeZone'): \`current_setting\` does not depend on its arguments alone
      "CURRENT_SETTING"('TimeZone'): \`current_setting\` does not depend on its arguments alone
      getvariable('v'): \`getvariable\` does not depend on its arguments alone
      getenv('HOME'): there is no function \`getenv\`
      version(): \`version\` does not depend on its arguments alone
      user: \`user\` does not depend on the row alone
      current_user: \`current_user\` does not depend on the row alone
      session_user -> '$': it has \`session_user\` before an arrow, where it may be a value of the session
      current_schema: \`current_schema\` does not depend on the row alone
      current_database(): \`current_database\` does not depend on its arguments alone
      pg_catalog.current_database(): there is no function \`pg_catalog.current_database\`
      current_query(): \`current_query\` does not depend on its arguments alone
      current_connection_id(): \`current_connection_id\` does not depend on its arguments alone
      txid_current(): \`txid_current\` does not depend on its arguments alone
      nextval('s'): \`nextval\` does not depend on its arguments alone
      stats(x): \`stats\` does not depend on its arguments alone
      error('x'): \`error\` does not depend on its arguments alone
      write_log('x'): \`write_log\` does not depend on its arguments alone
      sleep_ms(1): \`sleep_ms\` does not depend on its arguments alone
      pg_sleep(1): \`pg_sleep\` does not depend on its arguments alone
      in_search_path('a', 'b'): \`in_search_path\` does not depend on its arguments alone
      pg_get_constraintdef(1): \`pg_get_constraintdef\` does not depend on its arguments alone
      get_block_size('memory'): \`get_block_size\` does not depend on its arguments alone
      __internal_decompress_string(id): \`__internal_decompress_string\` does not depend on its arguments alone
      "
    `);
  });

  test("files and tables", async () => {
    const texts = [
      "read_text('other.parquet')",
      "read_parquet('other.parquet')",
      "glob('*')",
      "query('SELECT 1')",
      "duckdb_settings()",
      "which_secret('a', 's3')",
      "json_serialize_plan('SELECT * FROM ''other.parquet''')",
      "json_execute_serialized_sql('{}')",
    ];
    expect(await findings(texts)).toMatchInlineSnapshot(`
      "
      read_text('other.parquet'): \`read_text\` gives a table, not a value
      read_parquet('other.parquet'): \`read_parquet\` gives a table, not a value
      glob('*'): \`glob\` gives a table, not a value
      query('SELECT 1'): \`query\` gives a table, not a value
      duckdb_settings(): \`duckdb_settings\` gives a table, not a value
      which_secret('a', 's3'): \`which_secret\` gives a table, not a value
      json_serialize_plan('SELECT * FROM ''other.parquet'''): \`json_serialize_plan\` does not depend on its arguments alone
      json_execute_serialized_sql('{}'): \`json_execute_serialized_sql\` gives a table, not a value
      "
    `);
  });

  test("columns that are not the shard's", async () => {
    const texts = [
      "nosuch",
      "nam",
      "file_row_number",
      "file_row_number -> '$'",
      "(file_row_number::VARCHAR) -> '$'",
      "filename",
      "file_index",
      "rowid",
      '"input.where"',
      "\"input.where\" -> '$'",
      '"input.path".id',
      "read_parquet.id",
      "q -> '$'",
      "s.nosuch",
    ];
    expect(await findings(texts)).toMatchInlineSnapshot(`
      "
      nosuch: the shard has no column \`nosuch\`
      nam: the shard has no column \`nam\`; did you mean \`name\`?
      file_row_number: the shard has no column \`file_row_number\`
      file_row_number -> '$': Binder Error: Referenced column "file_row_number" not found in FROM clause!
      (file_row_number::VARCHAR) -> '$': the shard has no column \`file_row_number\`
      filename: the shard has no column \`filename\`
      file_index: the shard has no column \`file_index\`
      rowid: the shard has no column \`rowid\`
      "input.where": the shard has no column \`input.where\`
      "input.where" -> '$': Binder Error: Referenced column "input.where" not found in FROM clause!
      "input.path".id: the shard has no column \`input.path\`
      read_parquet.id: the shard has no column \`read_parquet\`
      q -> '$': Binder Error: Referenced column "q" not found in FROM clause!
      s.nosuch: Binder Error: Could not find key "nosuch" in struct
      "
    `);
  });

  test("functions that are not there, or not there for these types", async () => {
    const texts = [
      "lowr(name)",
      "name.lower()",
      "system.main.lower(name)",
      "ln(name, name)",
      "lower(DISTINCT name)",
      "name::foo",
      "strptime(name, '%Q')",
      "regexp_matches(name, '(')",
      "list_aggregate(l, 'no_such')",
      "x.y",
    ];
    expect(await findings(texts)).toMatchInlineSnapshot(`
      "
      lowr(name): there is no function \`lowr\`; did you mean \`lower\`?
      name.lower(): there is no function \`name.lower\`
      system.main.lower(name): there is no function \`main.lower\`
      ln(name, name): Binder Error: No function matches the given name and argument types 'ln(VARCHAR, VARCHAR)'. You might need to add explicit type casts.
      lower(DISTINCT name): Invalid Input Error: Function "lower" is a Scalar Function. "DISTINCT", "FILTER", and "ORDER BY" are only applicable to aggregate functions.
      name::foo: Catalog Error: Type with name foo does not exist!
      strptime(name, '%Q'): Invalid Input Error: Failed to parse format specifier %Q: Unrecognized format for strftime/strptime: %Q
      regexp_matches(name, '('): Invalid Input Error: missing ): (
      list_aggregate(l, 'no_such'): Catalog Error: Aggregate Function with name no_such does not exist!
      x.y: Binder Error: Cannot extract field 'y' from expression "x" because it is not a struct, union, map, or json
      "
    `);
  });
});

test.each(["input.where", "INPUT.WHERE", "input.path", "input.columns.a"])(
  "a shard with a column %s is refused: expressions could not tell it from what they need themselves",
  async (name) => {
    const given = [...columns, { name, sourceType: "BIGINT", type: "int64" as const }];
    const said = await refusalOf(decoder.bindExpression({ path, text: "x", columns: given, partitions: new Map() }));
    expect(said).toBe(
      `64 SPEC_INVALID\nbinding the expression x: the shard has a column \`${name}\`, a name that expressions need for themselves\nhint: rename it, or do without input.where and input.columns`,
    );
  },
);

test("an expression that has not been bound is checked all the same before rows are read", async () => {
  const list = [{ kind: "where" as const, name: "input.where", text: "x > random()", uses: [] }];
  const projection = {
    inputs: [],
    passthrough: [],
    expressions: { list, folders: [] },
    cast: "exact" as const,
    missing: "bad_row" as const,
  };
  const rows = decoder.read({ path, rowStart: 0, rowEnd: 1, projection, partitions: new Map() });
  expect(await refusalOf(rows[Symbol.asyncIterator]().next())).toContain(
    "checking the expression x > random(): `random` does not depend on its arguments alone",
  );
});

/**
 * Each function was looked at, and called under two clocks and environments where it can be called: what a new
 * release of DuckDB adds must be looked at too.
 */
test("the functions that may be called are those that somebody looked at", async () => {
  const duckdb: DuckDb = await openDuckDb({ threads: 1, allowed: {} });
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
