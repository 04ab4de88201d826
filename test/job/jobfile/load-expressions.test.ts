import { describe, expect, test } from "vitest";
import { load, minimalSpec, specRefusal } from "../../support/spec.js";

const withInput = (lines: string, rest = ""): string =>
  `${minimalSpec.replace("  path: in/*.parquet\n", `  path: in/*.parquet\n${lines}`)}${rest}`;

describe("input.columns and input.where", () => {
  test("expressions are kept as they are written", () => {
    const { input } = load(
      withInput(
        "  columns:\n    b: ln(1 + x)\n    A_1: |\n      x -- why\n      + 1\n  where: x > 0 AND \"y z\" <> ''\n",
      ),
    );
    expect(input.columns).toEqual({ b: "ln(1 + x)", A_1: "x -- why\n+ 1\n" });
    expect(input.where).toBe("x > 0 AND \"y z\" <> ''");
  });

  test("input.columns and input.where are empty by default", () => {
    const { input } = load(minimalSpec);
    expect([input.columns, input.where]).toEqual([{}, undefined]);
  });

  test("expressions take params and clock values as texts", () => {
    const text = withInput(
      "  columns:\n    age_days: date_diff('day', born, DATE ${today})\n  where: owner <> ${who} AND ds < ${ds:-2020-01-01}\n",
      "params:\n  who: o'brien\n  ds: ''\n",
    );
    const { input } = load(text);
    expect(input.columns).toEqual({ age_days: "date_diff('day', born, DATE '2026-11-21')" });
    expect(input.where).toBe("owner <> 'o''brien' AND ds < '2020-01-01'");
    expect(load(text, { params: { who: "x' OR 'a' = 'a" } }).input.where).toContain("<> 'x'' OR ''a'' = ''a' AND");
  });

  test("expressions take no environment variable, because it may be a secret and the plan keeps expressions", () => {
    const text = withInput("  where: token = ${TOKEN}\n  columns: { a: '${TOKEN}' }\n");
    expect(specRefusal(text, { env: { TOKEN: "hush" } })).toMatchInlineSnapshot(`
      "64 SPEC_INVALID
      reading job.yaml: 2 problems
        job.yaml:5:10: input.where: \${TOKEN} is no param; declare it under params
        job.yaml:6:17: input.columns.a: \${TOKEN} is no param; declare it under params"
    `);
    // Through a param it is the author's choice.
    const chosen = withInput("  where: token = ${t}\n", "params:\n  t: ${TOKEN}\n");
    expect(load(chosen, { env: { TOKEN: "hush" } }).input.where).toBe("token = 'hush'");
  });

  test("the error for a param at a wrong place in an expression says why it cannot be there", () => {
    const text = withInput(
      "  where: a = '${p}'\n  columns:\n    b: x -- ${p}\n    c: E${p}\n    d: ${p\n    e: $${p}\n",
      "params:\n  p: v\n",
    );
    expect(specRefusal(text)).toMatchInlineSnapshot(`
      "64 SPEC_INVALID
      reading job.yaml: 4 problems
        job.yaml:5:10: input.where: found \${p} inside quotes; write it without quotes, because its value is inserted as a quoted text
        job.yaml:7:8: input.columns.b: found \${p} in a comment; remove it from the comment
        job.yaml:8:8: input.columns.c: found \${p} right next to a literal or a word; its value is inserted as a quoted text, so put a blank or an operator between them
        job.yaml:9:8: input.columns.d: found \${p, expected \${name} or \${name:-default}, or for a date \${name - 7d} with blanks around the sign; a literal \${ is written $\${"
    `);
  });

  test.each([
    ["a list of columns", "  columns: [a, b]\n"],
    ["a column that is a mapping", "  columns:\n    a: { sql: x }\n"],
    ["an empty expression", '  columns: { a: "" }\n  where: ""\n'],
    ["an expression that YAML takes for a number or a flag", "  columns: { a: 1 }\n  where: true\n"],
    ["no expression", "  columns: { a: }\n  where:\n"],
    ["a column whose name is no name", "  columns: { a.b: x, 1a: x }\n"],
    ["a column without a name", '  columns: { "": x }\n'],
    ["a column computed twice", "  columns: { amount: x, Amount: y }\n"],
    ["the same key twice", "  columns:\n    a: x\n    a: y\n"],
    ["a name that JavaScript reserves", "  columns: { __proto__: x }\n"],
  ])("input.columns and input.where refuse %s", (_what, lines) => {
    expect(specRefusal(withInput(lines))).toMatchSnapshot();
  });
});
