import { type DuckDBConnection, DuckDBInstance } from "@duckdb/node-api";
import * as fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { fillTemplate } from "#src/job/jobfile/template.js";
import { torture } from "../../support/torture.js";

const fill = (text: string, params: Readonly<Record<string, string>> = { p: "v" }): string => {
  const filled = fillTemplate(text, (name) => (Object.hasOwn(params, name) ? params[name] : undefined), "sql");
  return "text" in filled
    ? filled.text
    : `${filled.fault.kind}${"found" in filled.fault ? ` ${filled.fault.found}` : ""}`;
};

describe("a reference in an expression is a text literal", () => {
  test.each([
    ["d < ${p}", "d < 'v'"],
    ["${p} || name", "'v' || name"],
    ["f(${p},${p})", "f('v','v')"],
    ["DATE ${p}", "DATE 'v'"],
    ["x IN (${p}, ${q:-else})", "x IN ('v', 'else')"],
    ["'quoted' || ${p}", "'quoted' || 'v'"],
    ["'it''s' || ${p}", "'it''s' || 'v'"],
    ['"a ""b"" c" = ${p}', '"a ""b"" c" = \'v\''],
    ["$$it's$$ || ${p}", "$$it's$$ || 'v'"],
    ["E'it\\'s' || ${p}", "E'it\\'s' || 'v'"],
    ["'\\' || ${p}", "'\\' || 'v'"],
    ["x -- it's\n= ${p}", "x -- it's\n= 'v'"],
    ["x /* it's /* nested */ */ = ${p}", "x /* it's /* nested */ */ = 'v'"],
    ["'$${p}' || ${p}", "'${p}' || 'v'"],
    ["name = ${p}::VARCHAR", "name = 'v'::VARCHAR"],
    ["a.b.${p}", "a.b.'v'"],
    ["$$${p}$$", "$${p}$$"],
  ])("%j", (template, filled) => {
    expect(fill(template)).toBe(filled);
  });

  test.each([
    ["it's", "'it''s'"],
    ["'; DROP TABLE x; --", "'''; DROP TABLE x; --'"],
    ["", "''"],
    ["a\\", "'a\\'"],
    ["$$ ${q} $1", "'$$ ${q} $1'"],
    ["zwei\nZeilen", "'zwei\nZeilen'"],
  ])("a reference in an expression is a text literal of any value: %j", (value, literal) => {
    expect(fill("x = ${p}", { p: value })).toBe(`x = ${literal}`);
  });
});

describe("a reference is refused where its value could be more than a text", () => {
  test.each([
    ["x = '${p}'", "quoted ${p}"],
    ['"${p}" = 1', "quoted ${p}"],
    ["x = 'a''${p}'", "quoted ${p}"],
    ["E'\\'${p}'", "quoted ${p}"],
    ["$$ ${p} $$", "quoted ${p}"],
    ["$t$ $$ ${p} $t$", "quoted ${p}"],
    ["$$ $${ ${p} $$", "quoted ${p}"],
    ["$$${ || ${p} $$", "quoted ${p}"],
    ["x -- ${p}", "commented ${p}"],
    ["x /* ${p} */", "commented ${p}"],
    ["x /* /* */ ${p} */", "commented ${p}"],
    ["E${p}", "attached ${p}"],
    ["e${p}", "attached ${p}"],
    ["U&${p}", "attached ${p}"],
    ["E'a'${p}", "attached ${p}"],
    ["E'a'\n${p}", "attached ${p}"],
    ["E'a' -- so\n /* on */ ${p}", "attached ${p}"],
    ["${p}${q:-x}", "attached ${q:-x}"],
    ["${p}'s'", "attached ${p}"],
    ["${p}\n's'", "attached ${p}"],
    ["${p} -- so\n /* on */ 's'", "attached ${p}"],
    ["${p", "malformed ${p"],
    ["${}", "malformed ${}"],
    ["${q}", "unset"],
  ])("%j", (template, fault) => {
    expect(fill(template)).toBe(fault);
  });
});

function withoutPlaces(tree: unknown): unknown {
  return JSON.parse(
    JSON.stringify(tree, (key, value: unknown) => (key === "query_location" ? undefined : value)),
  ) as unknown;
}

const replaced = (tree: unknown, from: string, to: string): unknown =>
  JSON.parse(JSON.stringify(tree), (_key, value: unknown) => (value === from ? to : value)) as unknown;

describe("as DuckDB reads it", () => {
  let instance: DuckDBInstance;
  let connection: DuckDBConnection;
  beforeAll(async () => {
    instance = await DuckDBInstance.create(":memory:", { threads: "1" });
    connection = await instance.connect();
  });
  afterAll(() => {
    connection.closeSync();
    instance.closeSync();
  });

  /** The syntax tree without places; undefined where it does not parse. */
  async function treeOf(text: string): Promise<unknown> {
    const quoted = `SELECT ${text}\n`.replaceAll("'", "''");
    const rows = (await connection.runAndReadAll(`SELECT json_serialize_sql('${quoted}')`)).getRows();
    const found = JSON.parse(String(rows[0]?.[0])) as { error: boolean };
    return found.error ? undefined : withoutPlaces(found);
  }

  const pieces = ["'", "''", '"', "E'", "e", "$$", "$t$", "--", "/*", "*/", "\n", " ", "\\", "a", "1", "||", "U&", ","];
  const part = fc.oneof(
    { weight: 1, arbitrary: fc.constant("${p}") },
    { weight: 3, arbitrary: fc.constantFrom(...pieces, " || ", "'b'", "$$c$$", "(", ")") },
  );
  const template = fc.array(part, { minLength: 1, maxLength: 9 }).map((parts) => parts.join(""));
  const value = fc
    .array(fc.constantFrom(...pieces, ";", "SELECT", "=", "x'", "$"), { maxLength: 6 })
    .map((parts) => parts.join(""));
  const plain = "plainvalue";

  test("no value changes what is around it", async () => {
    let told = 0;
    await fc.assert(
      fc.asyncProperty(template, value, async (text, given) => {
        const usual = fillTemplate(text, () => plain, "sql");
        const tree = "text" in usual && text.includes("${p}") ? await treeOf(usual.text) : undefined;
        if (tree !== undefined) {
          told += 1;
          expect(await treeOf(fill(text, { p: given })), text).toEqual(replaced(tree, plain, given));
        }
      }),
      { numRuns: torture ? 6000 : 1500 },
    );
    expect(told).toBeGreaterThan(25);
  });
});
