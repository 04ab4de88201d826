import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type ExpressionShard, openExpressionShard } from "../../support/expression-shard.js";
import { refusalOf } from "../../support/faulty.js";

let shard: ExpressionShard;

beforeAll(async () => {
  shard = await openExpressionShard();
});

afterAll(async () => {
  await shard[Symbol.asyncDispose]();
});

describe("what depends on more than the row is refused", () => {
  test("the clock", async () => {
    await shard.expectFindings([
      ["now()", "`now` does not depend on its arguments alone"],
      ["today()", "`today` does not depend on its arguments alone"],
      ["current_date", "`current_date` does not depend on the row alone"],
      ["Current_Timestamp", "`Current_Timestamp` does not depend on the row alone"],
      ["current_time", "`current_time` does not depend on the row alone"],
      ["localtime", "`localtime` does not depend on the row alone"],
      ["localtimestamp", "`localtimestamp` does not depend on the row alone"],
      ["current_date()", "`current_date` does not depend on its arguments alone"],
      ["current_localtime()", "`current_localtime` does not depend on its arguments alone"],
      ["get_current_timestamp()", "`get_current_timestamp` does not depend on its arguments alone"],
      ["age(ts)", "`age` does not depend on its arguments alone"],
      ["age(ts) + age(ts, ts)", "`age` does not depend on its arguments alone"],
      ["age(ts, ts) + age(ts)", "`age` does not depend on its arguments alone"],
      ["age(age(ts) + ts, ts)", "`age` does not depend on its arguments alone"],
      ["ago(INTERVAL 1 DAY)", "`ago` does not depend on its arguments alone"],
      ["pg_postmaster_start_time()", "`pg_postmaster_start_time` does not depend on its arguments alone"],
      ["d < current_date", "`current_date` does not depend on the row alone"],
      ["('\"' || current_date::VARCHAR || '\"') -> '$'", "`current_date` does not depend on the row alone"],
      [
        "current_timestamp -> '$'",
        "it has `current_timestamp` before an arrow, where it may be a value of the session",
      ],
    ]);
  });

  test("the offset of today, which DuckDB gives a time that has none", async () => {
    await shard.expectFindings([
      ["name::TIMETZ", "it has a cast to TIME WITH TIME ZONE, whose offset is today's"],
      ["TIMETZ '10:00:00'", "it has a cast to TIME WITH TIME ZONE, whose offset is today's"],
      ["TRY_CAST([name] AS TIME WITH TIME ZONE[])", "it has a cast to TIME WITH TIME ZONE, whose offset is today's"],
      ["name::STRUCT(t TIMETZ)", "it has a cast to TIME WITH TIME ZONE, whose offset is today's"],
      ["tz AT TIME ZONE 'Australia/Sydney'", "column `tz` is TIME WITH TIME ZONE"],
      ["tz < '10:00:00'", "column `tz` is TIME WITH TIME ZONE"],
      ["tzs[1]", 'column `tzs` is STRUCT("t" TIME WITH TIME ZONE)[]'],
    ]);
  });

  test("chance", async () => {
    await shard.expectFindings([
      ["random()", "`random` does not depend on its arguments alone"],
      ["CASE WHEN x > 0 THEN random() ELSE 0 END", "`random` does not depend on its arguments alone"],
      ["list_transform(l, lambda q: q + random())", "`random` does not depend on its arguments alone"],
      ["uuid()", "`uuid` does not depend on its arguments alone"],
      ["gen_random_uuid()", "`gen_random_uuid` does not depend on its arguments alone"],
      ["setseed(0.5)", "`setseed` does not depend on its arguments alone"],
    ]);
  });

  test("settings, variables, the session, the program", async () => {
    await shard.expectFindings([
      ["current_setting('TimeZone')", "`current_setting` does not depend on its arguments alone"],
      ["\"CURRENT_SETTING\"('TimeZone')", "`current_setting` does not depend on its arguments alone"],
      ["getvariable('v')", "`getvariable` does not depend on its arguments alone"],
      ["getenv('HOME')", "there is no function `getenv`"],
      ["version()", "`version` does not depend on its arguments alone"],
      ["user", "`user` does not depend on the row alone"],
      ["current_user", "`current_user` does not depend on the row alone"],
      ["session_user -> '$'", "it has `session_user` before an arrow, where it may be a value of the session"],
      ["current_schema", "`current_schema` does not depend on the row alone"],
      ["current_database()", "`current_database` does not depend on its arguments alone"],
      ["pg_catalog.current_database()", "there is no function `pg_catalog.current_database`"],
      ["current_query()", "`current_query` does not depend on its arguments alone"],
      ["current_connection_id()", "`current_connection_id` does not depend on its arguments alone"],
      ["txid_current()", "`txid_current` does not depend on its arguments alone"],
      ["nextval('s')", "`nextval` does not depend on its arguments alone"],
      ["stats(x)", "`stats` does not depend on its arguments alone"],
      ["error('x')", "`error` does not depend on its arguments alone"],
      ["write_log('x')", "`write_log` does not depend on its arguments alone"],
      ["sleep_ms(1)", "`sleep_ms` does not depend on its arguments alone"],
      ["pg_sleep(1)", "`pg_sleep` does not depend on its arguments alone"],
      ["in_search_path('a', 'b')", "`in_search_path` does not depend on its arguments alone"],
      ["pg_get_constraintdef(1)", "`pg_get_constraintdef` does not depend on its arguments alone"],
      ["get_block_size('memory')", "`get_block_size` does not depend on its arguments alone"],
      ["__internal_decompress_string(id)", "`__internal_decompress_string` does not depend on its arguments alone"],
    ]);
  });

  test("files and tables", async () => {
    await shard.expectFindings([
      ["read_text('other.parquet')", "`read_text` gives a table, not a value"],
      ["read_parquet('other.parquet')", "`read_parquet` gives a table, not a value"],
      ["glob('*')", "`glob` gives a table, not a value"],
      ["query('SELECT 1')", "`query` gives a table, not a value"],
      ["duckdb_settings()", "`duckdb_settings` gives a table, not a value"],
      ["which_secret('a', 's3')", "`which_secret` gives a table, not a value"],
      [
        "json_serialize_plan('SELECT * FROM ''other.parquet''')",
        "`json_serialize_plan` does not depend on its arguments alone",
      ],
      ["json_execute_serialized_sql('{}')", "`json_execute_serialized_sql` gives a table, not a value"],
    ]);
  });

  test("columns that are not the shard's", async () => {
    await shard.expectFindings([
      ["nosuch", "the shard has no column `nosuch`"],
      ["nam", "the shard has no column `nam`; did you mean `name`?"],
      ["file_row_number", "the shard has no column `file_row_number`"],
      ["file_row_number -> '$'", 'Binder Error: Referenced column "file_row_number" not found in FROM clause!'],
      ["(file_row_number::VARCHAR) -> '$'", "the shard has no column `file_row_number`"],
      ["filename", "the shard has no column `filename`"],
      ["file_index", "the shard has no column `file_index`"],
      ["rowid", "the shard has no column `rowid`"],
      ['"input.where"', "the shard has no column `input.where`"],
      ["\"input.where\" -> '$'", 'Binder Error: Referenced column "input.where" not found in FROM clause!'],
      ['"input.path".id', "the shard has no column `input.path`"],
      ["read_parquet.id", "the shard has no column `read_parquet`"],
      ["q -> '$'", 'Binder Error: Referenced column "q" not found in FROM clause!'],
      ["s.nosuch", 'Binder Error: Could not find key "nosuch" in struct'],
    ]);
  });

  test("functions that are not there, or not there for these types", async () => {
    await shard.expectFindings([
      ["lowr(name)", "there is no function `lowr`; did you mean `lower`?"],
      ["name.lower()", "there is no function `name.lower`"],
      ["system.main.lower(name)", "there is no function `main.lower`"],
      [
        "ln(name, name)",
        "Binder Error: No function matches the given name and argument types 'ln(VARCHAR, VARCHAR)'. You might need to add explicit type casts.",
      ],
      [
        "lower(DISTINCT name)",
        'Invalid Input Error: Function "lower" is a Scalar Function. "DISTINCT", "FILTER", and "ORDER BY" are only applicable to aggregate functions.',
      ],
      ["name::foo", "Catalog Error: Type with name foo does not exist!"],
      [
        "strptime(name, '%Q')",
        "Invalid Input Error: Failed to parse format specifier %Q: Unrecognized format for strftime/strptime: %Q",
      ],
      ["regexp_matches(name, '(')", "Invalid Input Error: missing ): ("],
      ["list_aggregate(l, 'no_such')", "Catalog Error: Aggregate Function with name no_such does not exist!"],
      [
        "x.y",
        "Binder Error: Cannot extract field 'y' from expression \"x\" because it is not a struct, union, map, or json",
      ],
    ]);
  });
});

test.each(["input.where", "INPUT.WHERE", "input.path", "input.columns.a"])(
  "a shard with a column %s is refused: expressions could not tell it from what they need themselves",
  async (name) => {
    const given = [...shard.columns, { name, sourceType: "BIGINT", type: "int64" as const }];
    const said = await refusalOf(
      shard.decoder.bindExpression({
        file: { path: shard.path, name: shard.path },
        text: "x",
        columns: given,
        partitions: new Map(),
      }),
    );
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
    expressions: { list, folders: [], columns: [] },
    cast: "exact" as const,
    missing: "bad_row" as const,
  };
  const rows = shard.decoder.read([
    { file: { path: shard.path, name: shard.path }, rowStart: 0, rowEnd: 1, projection, partitions: new Map() },
  ]);
  expect(await refusalOf(rows[Symbol.asyncIterator]().next())).toContain(
    "checking the expression x > random(): `random` does not depend on its arguments alone",
  );
});
