import { describe, expect, test } from "vitest";
import { load, minimalSpec, specRefusal } from "../../support/spec.js";

const withParams = (params: string, path = "in"): string =>
  `${minimalSpec.replace("in/*.parquet", () => path)}params:\n${params}`;

describe("params", () => {
  test.each([
    ["007", "007"],
    ["1.0", "1.0"],
    ["1e3", "1e3"],
    ["0x1F", "0x1F"],
    ["true", "true"],
    ["2026-01-31", "2026-01-31"],
    ['"quoted # text"', "quoted # text"],
    ["12345678901234567890", "12345678901234567890"],
    ["-0", "-0"],
  ])("a param written as %s keeps exactly this text", (written, kept) => {
    expect(load(withParams(`  p: ${written}\n`, "in/${p}")).params).toEqual({ p: kept });
    expect(load(withParams(`  p: ${written}\n`, "in/${p}")).input.path).toEqual([`in/${kept}`]);
  });

  test("params keep the order of the spec", () => {
    expect(Object.keys(load(withParams("  b: 1\n  a: 2\n")).params)).toEqual(["b", "a"]);
  });

  test("params may name an earlier param, the clock and the environment", () => {
    const spec = load(withParams("  ds: ${today}\n  folder: ${ROOT}/dt=${ds}\n", "${folder}/*.parquet"), {
      env: { ROOT: "lake" },
    });
    expect(spec.params).toEqual({ ds: "2026-11-21", folder: "lake/dt=2026-11-21" });
    expect(spec.input.path).toEqual(["lake/dt=2026-11-21/*.parquet"]);
  });

  test("params win over environment variables", () => {
    expect(load(withParams("  ds: mine\n", "${ds}"), { env: { ds: "theirs" } }).input.path).toEqual(["mine"]);
  });

  test("params may have the names of clock values", () => {
    expect(load(withParams("  today: 2020-01-01\n", "${today}")).input.path).toEqual(["2020-01-01"]);
  });

  test("the error for params that name a later param says that order matters", () => {
    const said = specRefusal(withParams("  a: ${b}\n  b: x\n"));
    expect(said).toMatch(/^64 SPEC_INVALID\nreading job\.yaml:11:6: params\.a: /);
    expect(said).toContain("later");
  });

  test("params are filled in everywhere in the file: nested and in lists", () => {
    const text = `params: { p: x }\n${minimalSpec}`
      .replace("in/*.parquet", "['a/${p}', 'b/${p}']")
      .replace("path: model.onnx", "path: ${p}.onnx\n  outputs: { s: '${p}[1]' }");
    const spec = load(text);
    expect([spec.input.path, spec.model.path, spec.model.outputs]).toEqual([["a/x", "b/x"], "x.onnx", { s: "x[1]" }]);
  });

  test("params are filled in once: a value with ${…} in it is not changed", () => {
    expect(load(withParams("  p: a\n", "${p}"), { params: { p: "${q}" } }).input.path).toEqual(["${q}"]);
  });

  test.each(["constructor", "toString", "hasOwnProperty"])("params may be called %s", (name) => {
    expect(load(withParams(`  ${name}: x\n`, `in/\${${name}}`)).input.path).toEqual(["in/x"]);
  });

  // What every object inherits is no environment variable.
  test.each(["constructor", "toString", "__proto__", "hasOwnProperty"])(
    "a name such as %s, which every object has, is unset unless the spec declares it",
    (name) => {
      expect(specRefusal(minimalSpec.replace("in/", `\${${name}}/`), { env: process.env })).toContain(
        `\${${name}} is neither`,
      );
    },
  );

  test("a param called __proto__ is refused, because it would not identify the run", () => {
    expect(specRefusal(withParams("  __proto__: x\n"))).toContain("params.__proto__: nothing can have this name");
  });
});

test("--param replaces the value in the spec, and values that the spec derives from it", () => {
  const spec = load(withParams("  ds: ${today}\n  out: o/${ds}\n", "${out}"), { params: { ds: "2026-01-31" } });
  expect(spec.params).toEqual({ ds: "2026-01-31", out: "o/2026-01-31" });
});

test("--param replaces a value that cannot be filled in", () => {
  expect(load(withParams("  ds: ${UNSET}\n"), { params: { ds: "x" } }).params).toEqual({ ds: "x" });
});

test("--param may be empty", () => {
  expect(load(withParams("  ds: a\n"), { params: { ds: "" } }).params).toEqual({ ds: "" });
});

test.each(["yesterday", "today", "Yesterday", "${yesterday}", "${today - 1d}", "tomorrow"])(
  "--param ds=%s is refused for the date of the run, which is waited for in vain",
  (given) => {
    for (const ds of ["${today}", '{ type: date, default: "${today}" }']) {
      const said = specRefusal(withParams(`  ds: ${ds}\n`), { params: { ds: given } });
      expect(said).toMatch(/^64 /);
      expect(said).toContain(`params.ds: found ${given}, expected a date such as 2026-11-23: --param takes the date`);
    }
  },
);

test("a name of the clock is a value like any other for a param that is no date", () => {
  expect(load(withParams("  which: x\n"), { params: { which: "yesterday" } }).params).toEqual({ which: "yesterday" });
});

test("--param that the spec does not declare is refused", () => {
  expect(specRefusal(withParams("  ds: x\n"), { params: { sd: "y", dss: "z" } })).toMatchInlineSnapshot(`
      "64 SPEC_INVALID
      reading job.yaml: 2 problems
        job.yaml:11:3: params: --param sd: the spec declares only ds
        job.yaml:11:3: params: --param dss: the spec declares only ds; did you mean \`ds\`?"
    `);
});

test("--param for a spec without params is refused", () => {
  expect(specRefusal(minimalSpec, { params: { ds: "y" } })).toMatchInlineSnapshot(`
      "64 SPEC_INVALID
      reading job.yaml:1:1: params: --param ds: the spec declares no params"
    `);
});

const path = (text: string, env: Record<string, string> = {}): readonly string[] =>
  load(
    minimalSpec.replace("in/*.parquet", () => JSON.stringify(text)),
    { env },
  ).input.path;

test.each(["path: 'out/dt={ds}'", "path: 'out/{today}/x'", "table: 't_{ds}'"])(
  "a param without its $ in the name of a place is refused: %s",
  (place) => {
    const target = place.startsWith("table") ? `postgres: { ${place} }` : `parquet: { ${place} }`;
    const said = specRefusal(withParams("  ds: x\n").replace(/ {2}parquet:\n.*\n/, `  ${target}\n`));
    expect(said).toContain("without a $; the value of");
  },
);

test("braces of a pattern, and those of other names, are left alone", () => {
  expect(path("in/{a,ds}/{b}/x")).toEqual(["in/{a,ds}/{b}/x"]);
});

test("${…} takes the environment variable, or the default if the variable is unset or empty", () => {
  const env = { SET: "v", EMPTY: "" };
  expect(path("${SET}/${SET:-d}/${EMPTY:-e}/${NONE:-f}/x${EMPTY}x/${NONE:-}", env)).toEqual(["v/v/e/f/xx/"]);
});

test("the default in ${…} may have any character but a closing brace", () => {
  expect(path("${NONE:-a:-b c/$1.parquet}")).toEqual(["a:-b c/$1.parquet"]);
});

test("${…} inserts a value unchanged, including JavaScript's replacement patterns", () => {
  expect(path("<${V}>", { V: "$& $1 $$ $`" })).toEqual(["<$& $1 $$ $`>"]);
});

test("a literal ${…} is written $${…}", () => {
  expect(path("a/$${b}/$$/$")).toEqual(["a/${b}/$$/$"]);
});

test("${…} inside a list is refused at the entry of the list", () => {
  expect(specRefusal(minimalSpec.replace("in/*.parquet", "[a, '${B}']"))).toMatchInlineSnapshot(`
      "64 SPEC_INVALID
      reading job.yaml:4:13: input.path[1]: \${B} is neither a param nor an environment variable; set it, or write \${B:-default}"
    `);
});

test("the error for a param in the time zone does not call the param undeclared", () => {
  const said = specRefusal(`${withParams("  zone: UTC\n")}timezone: \${zone}\n`);
  expect(said).toMatch(/^64 SPEC_INVALID\nreading job\.yaml:12:11: timezone: /);
  expect(said).not.toContain("neither a param");
});

test.each(["${", "${}", "${a b}", "${1a}", "${a:b}", "${a-b}", "${open/x", "${a:=b}", "${ a }"])(
  "%s is refused as malformed",
  (text) => {
    const said = specRefusal(minimalSpec.replace("in/*.parquet", () => JSON.stringify(`x/${text}`)));
    expect(said).toMatch(
      /^64 SPEC_INVALID\nreading job\.yaml:4:9: input\.path: found \$\{.*, expected \$\{name\} or \$\{name:-default\}/,
    );
  },
);

test("the error for a malformed ${…} shows the expected forms", () => {
  expect(specRefusal(minimalSpec.replace("model.onnx", '"${MODEL"'))).toMatchInlineSnapshot(`
      "64 SPEC_INVALID
      reading job.yaml:6:9: model.path: found \${MODEL, expected \${name} or \${name:-default}, or for a date \${name - 7d} with blanks around the sign; a literal \${ is written $\${"
    `);
});

test("${…} inside { } without quotes gets a hint to quote it", () => {
  const said = specRefusal(minimalSpec.replace("\n    path: out", " { path: out/${ds}, compression: zstd }"));
  expect(said).toMatch(/^64 SPEC_INVALID\nreading job\.yaml:8:/);
  expect(said).toMatch(/hint: .*quote/);
});

test("all unset variables of a spec are named at once", () => {
  expect(
    specRefusal(minimalSpec.replace("model.onnx", "${A}").replace("path: out", "path: ${B}/${C}")),
  ).toMatchInlineSnapshot(`
      "64 SPEC_INVALID
      reading job.yaml: 2 problems
        job.yaml:6:9: model.path: \${A} is neither a param nor an environment variable; set it, or write \${A:-default}
        job.yaml:9:11: output.parquet.path: \${B} is neither a param nor an environment variable; set it, or write \${B:-default}"
    `);
});

const withBatch = (value: string, env: Record<string, string> = {}): string | number =>
  load(`${minimalSpec}engine:\n  batch_size: ${value}\n`, { env }).engine.batch_size;

describe("numbers from ${…}", () => {
  test("${…} becomes a number where a number is expected", () => {
    expect(withBatch("${BATCH}", { BATCH: "512" })).toBe(512);
    expect(withBatch("${BATCH:-64}")).toBe(64);
    expect(withBatch("${BATCH}", { BATCH: "auto" })).toBe("auto");
    expect(load(`${minimalSpec}commit_rows: \${C}\n`, { env: { C: "1000" } }).commit_rows).toBe(1000);
  });

  const notNumbers = ["-5", "1.5", "x", "1e3", " 5", "99999999999999999999", "NaN", "0x10", "", "0", "1048577"];
  const refused =
    /^64 SPEC_INVALID\nreading job\.yaml:10:23: engine\.batch_size: found ".*", expected auto or a number from 1 to 1048576$/;

  test.each(notNumbers)("%j is refused", (value) => {
    expect(specRefusal(`${minimalSpec}engine: { batch_size: "\${BATCH}" }\n`, { env: { BATCH: value } })).toMatch(
      refused,
    );
  });

  test("a literal ${…} is no number", () => {
    expect(specRefusal(`${minimalSpec}engine: { batch_size: "$\${B}" }\n`)).toContain("expected auto or a number");
  });
});

const days = (iso: string, zone: string): Readonly<Record<string, string>> =>
  load(`${minimalSpec}timezone: ${zone}\nparams: { t: "\${today}", y: "\${yesterday}" }\n`, {
    nowMs: Date.parse(iso),
  }).params;

test.each([
  ["2026-11-21T12:00Z", "UTC", "2026-11-21", "2026-11-20"],
  ["2026-11-21T23:30Z", "Europe/Berlin", "2026-11-22", "2026-11-21"],
  ["2026-11-21T03:00Z", "America/Los_Angeles", "2026-11-20", "2026-11-19"],
  ["2026-11-21T11:00Z", "Pacific/Kiritimati", "2026-11-22", "2026-11-21"],
  ["2026-01-01T00:00Z", "UTC", "2026-01-01", "2025-12-31"],
  ["2028-03-01T00:00Z", "UTC", "2028-03-01", "2028-02-29"],
  // A day of 25 hours: 24 hours before 23:30 it is still the same day.
  ["2026-10-25T22:30Z", "Europe/Berlin", "2026-10-25", "2026-10-24"],
  // A day of 23 hours: 24 hours before 00:30 it is the day before yesterday.
  ["2026-03-29T22:30Z", "Europe/Berlin", "2026-03-30", "2026-03-29"],
  // The 30th of December 2011 never was in Samoa; the calendar says it was.
  ["2011-12-30T12:00Z", "Pacific/Apia", "2011-12-31", "2011-12-30"],
])("${today} and ${yesterday} at %s in %s are %s and %s", (iso, zone, today, yesterday) => {
  expect(days(iso, zone)).toEqual({ t: today, y: yesterday });
});

test("${today} follows a time zone that comes from the environment", () => {
  const text = `${minimalSpec}timezone: \${ZONE}\nparams: { t: "\${today}" }\n`;
  expect(load(text, { env: { ZONE: "Asia/Tokyo" }, nowMs: Date.parse("2026-11-21T20:00Z") }).params).toEqual({
    t: "2026-11-22",
  });
});

test("${today} does not hide the error for a wrong time zone", () => {
  expect(specRefusal(`${minimalSpec}timezone: Mars/Olympus\nparams: { t: "\${today}" }\n`)).toMatchInlineSnapshot(`
      "64 SPEC_INVALID
      reading job.yaml:10:11: timezone: found "Mars/Olympus", expected an IANA time zone such as Europe/Berlin"
    `);
});
