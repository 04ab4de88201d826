import { describe, expect, test } from "vitest";
import { load, minimalSpec, refusalOf, specRefusal } from "../../support/spec.js";

describe("a key that is not known", () => {
  test.each([
    [
      "in place of a known one",
      minimalSpec.replace("  path: in", "  pth: in"),
      "job.yaml:4:3: input.pth: unknown key; did you mean `path`?",
      "job.yaml:4:3: input: expected exactly one of path, table and kafka",
    ],
    [
      "at the top of the file",
      `${minimalSpec}comit_rows: 5\n`,
      "job.yaml:10:1: comit_rows: unknown key; did you mean `commit_rows`?",
    ],
    [
      "three levels down",
      `${minimalSpec}    compresion: zstd\n`,
      "job.yaml:10:5: output.parquet.compresion: unknown key; did you mean `compression`?",
    ],
    [
      "that is similar to none",
      `${minimalSpec}engine:\n  fruit: 5\n`,
      "job.yaml:11:3: engine.fruit: unknown key; expected one of providers, device_id, batch_size, threads, trees, memory",
    ],
    [
      "that differs only in case",
      minimalSpec.replace("name: daily", "Name: daily"),
      "job.yaml:1:1: name: missing; expected a text",
      "job.yaml:2:1: Name: unknown key; did you mean `name`?",
    ],
    [
      "that is a list",
      `${minimalSpec}? [a, b]\n: 1\n`,
      "job.yaml:1:1: [ a, b ]: unknown key; expected one of version, name, timezone, params, input, model, challenger, engine, output, commit_rows, on_bad_row, max_rejects, retry, checks, reuse, publish, report, serve",
    ],
  ])("an unknown key %s is refused at its own position", (_where, text, ...problems) => {
    expect(specRefusal(text)).toBe(refusalOf(...problems));
  });

  test("an unknown key with two swapped letters gets the right suggestion", () => {
    expect(specRefusal(minimalSpec.replace("name: daily", "naem: daily"))).toContain("did you mean `name`?");
  });

  test.each(["__proto__", "constructor", "toString", "hasOwnProperty", "valueOf"])(
    "a key called %s is refused like any other unknown key",
    (key) => {
      const said = specRefusal(`${minimalSpec}${key}: 1\n`);
      expect(said).toMatch(/^64 SPEC_INVALID\n/);
      expect(said).toContain(`job.yaml:10:1: ${key}: unknown key`);
    },
  );

  test.each(["__proto__", "constructor", "toString"])(
    "a key called %s below the top is refused like any other unknown key",
    (key) => {
      const said = specRefusal(minimalSpec.replace("  path: in", `  ${key}: 1\n  path: in`));
      expect(said).toMatch(/^64 SPEC_INVALID\n/);
      expect(said).toContain(
        `job.yaml:4:3: input.${key}: ${key === "__proto__" ? "nothing can have this name" : "unknown key"}`,
      );
    },
  );

  test.each([
    ["model.response", "  response: { __proto__: { type: string } }"],
    ["model.sampling", "  sampling: { __proto__: 1 }"],
    ["model.server.signature.outputs", "  server: { signature: { outputs: { __proto__: float32 } } }"],
    ["model.server.request.a", "  server: { request: { a: { __proto__: 1 } } }"],
    ["model.outputs", "  outputs: { __proto__: y }"],
  ])("a name in %s that JavaScript loses is refused", (key, line) => {
    expect(specRefusal(minimalSpec.replace("  path: model.onnx", line))).toContain(
      `${key}.__proto__: nothing can have this name; choose another`,
    );
  });

  test("a carried column whose name JavaScript loses is refused", () => {
    const spec = minimalSpec.replace("output:\n", "output:\n  columns: [__proto__]\n");
    expect(specRefusal(spec)).toContain('output.columns[0]: found "__proto__", expected a column');
  });
});

test.each([
  [
    "it is missing",
    minimalSpec.replace("  path: model.onnx\n", "  sha256: x\n"),
    "job.yaml:6:3: model.path: missing; expected a text; or write model.server instead of model.path",
    'job.yaml:6:11: model.sha256: found "x", expected 64 lower-case hex digits',
  ],
  [
    "a whole section is missing",
    minimalSpec.slice(0, minimalSpec.indexOf("output:")),
    "job.yaml:1:1: output: missing; expected a mapping",
  ],
  [
    "its value is missing",
    minimalSpec.replace("\n  path: in/*.parquet", ""),
    "job.yaml:3:7: input: found null, expected a mapping",
  ],
  ["it is version", minimalSpec.replace("version: 1\n", ""), "job.yaml:1:1: version: missing; expected 1"],
])("a required key is named when %s", (_when, text, ...problems) => {
  expect(specRefusal(text)).toBe(refusalOf(...problems));
});

test.each([
  ["between carried columns and predictions", "[id, SCORE]", "{ score: p }", "6:21: model.outputs.score", "score"],
  ["among carried columns", "[id, Id]", "{ score: p }", "9:17: output.columns[1]", "Id"],
  ["among predictions", "[id]", "{ score: p, Score: q }", "6:31: model.outputs.Score", "Score"],
])("output names are unique ignoring case, %s", (_which, columns, outputs, place, name) => {
  const text = minimalSpec
    .replace("output:", `output:\n  columns: ${columns}`)
    .replace("model:", `model:\n  outputs: ${outputs}`);
  expect(specRefusal(text)).toBe(
    refusalOf(`job.yaml:${place}: output column \`${name}\` is named twice (case does not count)`),
  );
});

const withReference = (reference: string): string =>
  minimalSpec.replace("model:", `model:\n  outputs: { score: ${JSON.stringify(reference)} }`);

describe("an output reference", () => {
  test.each(["p", "p[0]", "p[12]", "output:0", "a b[3]"])("%s is a tensor or one element of it", (reference) => {
    expect(load(withReference(reference)).model.outputs).toEqual({ score: reference });
  });

  test.each(["p[", "p[]", "p[-1]", "p[1", "p]1[", "p[1][2]", "p[x]", "[1]", "p[1] ", "p[0x1]"])(
    "%s is refused",
    (reference) => {
      expect(specRefusal(withReference(reference))).toMatch(
        /^64 SPEC_INVALID\nreading job\.yaml:6:21: model\.outputs\.score: found ".*", expected a tensor's name or name\[index\]$/,
      );
    },
  );
});

describe("several problems at once", () => {
  test("several problems of a spec are reported together, each at its place", () => {
    const text = minimalSpec
      .replace("daily", "Daily")
      .replace("path: model.onnx", "pth: model.onnx")
      .concat("engine: { threads: 0 }\n");
    expect(specRefusal(text)).toBe(
      refusalOf(
        'job.yaml:2:7: name: found "Daily", expected lower-case letters, digits and -, at most 63',
        "job.yaml:6:3: model.pth: unknown key; did you mean `path`?",
        "job.yaml:6:3: model.path: missing; expected a text; or write model.server instead of model.path",
        "job.yaml:10:20: engine.threads: found 0, expected auto or a number from 1 to 1024",
      ),
    );
  });

  test("ten problems of a spec are shown at most, and all are counted", () => {
    const text = `${minimalSpec}${Array.from({ length: 15 }, (_, index) => `zzz${index}: 1\n`).join("")}`;
    const said = specRefusal(text);
    expect(said).toContain("job.yaml: 15 problems");
    expect(said).toContain("and 5 more");
    expect(said.split("\n").filter((line) => line.includes("unknown key"))).toHaveLength(10);
  });
});

describe("a spec that is right", () => {
  test("a valid spec gets every default", () => {
    expect(load(minimalSpec)).toEqual({
      version: 1,
      name: "daily",
      timezone: "UTC",
      params: {},
      input: {
        path: ["in/*.parquet"],
        min_rows: 1,
        columns: {},
        partitions: {},
        spool: { max_mb: 1024 },
        verify: "pinned",
      },
      model: { path: "model.onnx", cast: "exact", missing: "bad_row" },
      engine: { providers: ["cpu"], device_id: 0, batch_size: "auto", threads: "auto", trees: "auto", memory: "auto" },
      output: { columns: [], lineage: false, parquet: { path: "out", compression: "zstd" } },
      commit_rows: "auto",
      on_bad_row: "fail",
      max_rejects: "0.1%",
      retry: { max_seconds: 300 },
      serve: {
        host: "127.0.0.1",
        port: 8080,
        batch: { rows: 64, wait: 0 },
        queue: 1000,
        max_rows: 1000,
        max_bytes: 8_388_608,
        poll: 10_000,
        canary: 0,
      },
      report: { method: "get", timeout: 10, on_failure: "", on_held: "", on_late: "", on_success: "" },
    });
  });

  test("a valid spec is deeply frozen", () => {
    const text = `${minimalSpec}params: { ds: x }\n`.replace(
      "model:",
      "model:\n  inputs: { f: [a, b] }\n  outputs: { s: p }",
    );
    expect(unfrozen(load(text), "spec")).toEqual([]);
    expect(unfrozen(load(minimalSpec), "spec")).toEqual([]);
  });

  test("a valid spec is not shared between two loads", () => {
    expect(load(minimalSpec).engine.providers).toEqual(load(minimalSpec).engine.providers);
    expect(() => {
      (load(minimalSpec).input.path as string[]).push("x");
    }).toThrow(TypeError);
  });

  test("a valid spec may be JSON, since JSON is YAML", () => {
    const input = { path: "in/*.parquet" };
    const written = {
      version: 1,
      name: "daily",
      input,
      model: { path: "model.onnx" },
      output: { parquet: { path: "out" } },
    };
    expect(load(JSON.stringify(written))).toEqual(load(minimalSpec));
  });
});

test.each([
  ["a Delta table", "  path: in/*.parquet", "  delta:\n    path: ${TABLE}"],
  ["a table of a catalog", '  table: db.features\n  catalog: { url: "${CATALOG}" }', "  parquet:\n    path: ${OUT}"],
])("a pipe needs no variable of the places of a spec, %s", (_name, input, output) => {
  const text = minimalSpec.replace("  path: in/*.parquet", input).replace("  parquet:\n    path: out", output);
  expect(load(text, { pipe: true })).toMatchObject({ input: { path: ["stdin"] }, output: { columns: [] } });
});

function unfrozen(value: unknown, path: string): string[] {
  if (typeof value !== "object" || value === null) {
    return [];
  }
  const here = Object.isFrozen(value) ? [] : [path];
  return [...here, ...Object.entries(value).flatMap(([key, child]) => unfrozen(child, `${path}.${key}`))];
}
