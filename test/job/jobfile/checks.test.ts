import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { parse } from "yaml";
import { draftSpec, type SpecDraft } from "#src/cli/commands/init.js";
import { loadSpec } from "#src/job/jobfile/load.js";
import { modelUri } from "#src/job/jobfile/model-spec.js";
import { modelUriProblem, parseHubUri, parseMlflowUri } from "#src/job/jobfile/uri.js";
import { projectFolder } from "../../support/cli.js";
import { schemaErrors } from "../../support/json-schema.js";
import { load, minimalSpec, specRefusal } from "../../support/spec.js";

const withChecks = (checks: string): string => `${minimalSpec}checks: ${checks}\n`;

function listed(values: string): unknown {
  const limits = load(withChecks(`{ outputs: { s: { in: ${values} } } }`)).checks?.outputs["s"];
  return limits === undefined || limits === "ignore" ? undefined : limits.in;
}

describe("checks", () => {
  test("checks are off unless the spec has them, and {} has all defaults", () => {
    expect(load(minimalSpec).checks).toBeUndefined();
    expect(load(withChecks("{}")).checks).toEqual({
      on_fail: "hold",
      baseline: "published",
      factor: 4,
      inputs: {},
      rejects: 0.01,
      outputs: {},
      expect: [],
    });
  });

  test("checks take percentages as shares of rows", () => {
    const { rejects, outputs } =
      load(withChecks("{ rejects: 0.5%, outputs: { score: { nulls: 0% } } }")).checks ?? expect.fail();
    expect([rejects, outputs]).toEqual([0.005, { score: { nulls: 0 } }]);
  });

  test("checks take a factor for all columns, and one for a column, or leave it out", () => {
    const { factor, inputs, outputs } =
      load(withChecks("{ factor: 5, inputs: { temp: { factor: 10 }, day: ignore }, outputs: { s: ignore } }")).checks ??
      expect.fail();
    expect([factor, inputs, outputs]).toEqual([5, { temp: { factor: 10 }, day: "ignore" }, { s: "ignore" }]);
  });

  test.each([
    ["{ on_fail: stop }", /checks\.on_fail/],
    ["{ rejects: 0.01x }", /checks\.rejects.*expected a percentage such as 1%/],
    ["{ rejects: 101% }", /checks\.rejects.*at most 100%/],
    [
      "{ outputs: { s: { range: [1, 0] } } }",
      /s\.range: found \[1, 0\], expected \[least, most\], .*: the least comes first/,
    ],
    ["{ outputs: { s: { range: 0..1 } } }", /s\.range: found "0\.\.1", expected \[least, most\], such as \[0, 1\]$/],
    ["{ outputs: { s: { range: [0] } } }", /s\.range: found \[0\], expected \[least, most\], such as \[0, 1\]$/],
    ["{ outputs: { s: { range: [0, 1, 2] } } }", /s\.range: found \[0, 1, 2\], expected \[least, most\]/],
    ["{ outputs: { s: { range: [] } } }", /s\.range: found a list, expected \[least, most\]/],
    ["{ factor: -1 }", /checks\.factor: found -1, expected a number greater than 0, such as 4$/],
    ["{ outputs: { s: { factor: 0 } } }", /s\.factor: found 0, expected a number greater than 0, such as 4$/],
    ["{ inputs: { s: 5 } }", /inputs\.s: found 5, expected a mapping such as \{ factor: 10 \}, or ignore$/],
    [
      "{ expect: [{ ds: 2026-11-27, reason: '' }] }",
      /expect\[0\]\.reason: found "", expected a text that is not empty$/,
    ],
    [
      '{ expect: [{ ds: 2026-11-27, reason: "a\\0" }] }',
      /reason: found "a.*", expected a text without NUL characters$/,
    ],
    ["{ outputs: { s: { in: [0.5] } } }", /s\.in\[0\]: found 0\.5, expected a text, a whole number, true or false$/],
    [
      "{ outputs: { s: { in: [late, 1] } } }",
      /s\.in: expected values of one type; write a number that is a text in quotes/,
    ],
    ["{ outputs: { s: { in: late } } }", /s\.in: found "late", expected a list of values, such as \[churn, stay\]$/],
    ["{ outputs: { s: { in: [] } } }", /s\.in: found a list, expected at least one value$/],
    ["{ golden: file }", /golden: found "file", expected a mapping such as \{ path: golden\.parquet \}$/],
    ["{ sql: text }", /sql: found "text", expected conditions by name, such as \{ some_rows: count\(\*\) > 0 \}$/],
    ["{ unique: id }", /unique: found "id", expected a list of columns, such as \[customer_id\]$/],
    ["{ unique: [] }", /unique: found a list, expected at least one column$/],
    ["{ slices: country }", /slices: found "country", expected a list of columns, such as \[country\]$/],
    ["{ slices: [a, b, c, d, e] }", /slices: expected at most 4 columns$/],
    ["", /checks: found null, expected a mapping; `checks: \{\}` has all defaults$/],
    ["{ unique: [id, id] }", /checks\.unique.*a column is named twice/],
    ["{ golden: { path: gold*.parquet } }", /checks\.golden\.path.*without wildcards/],
    ["{ golden: { path: a.parquet, atol: -1 } }", /checks\.golden\.atol.*expected a number from 0/],
    ["{ inputs: { s: { nulls: 1 } } }", /checks\.inputs\.s\.nulls: unknown key/],
    ["{ expect: [{ reason: why }] }", /checks\.expect.*expected a param and its value next to reason/],
    [
      "{ expect: [{ day: 2026-11-27, reason: why }] }",
      /checks\.expect.*`day` is no param of this spec, which has no params$/,
    ],
  ])("checks refuse settings that they cannot carry out: %s", (checks, message) => {
    expect(specRefusal(withChecks(checks))).toMatch(message);
  });

  test("a key of expect that is no param is refused with the params that the spec has", () => {
    const spec = `params: { ds: "\${today}", region: EU }\n${withChecks("{ expect: [{ date: 2026-11-27, reason: why }] }")}`;
    expect(specRefusal(spec)).toMatch(/`date` is no param of this spec; its params are ds, region$/);
    expect(specRefusal(spec.replace("date: ", "regoin: "))).toMatch(/spec; did you mean `region`\?$/);
  });

  test("values of one type are listed, also numbers and truths as texts", () => {
    expect([listed("[1, -2]"), listed("[true]"), listed('["1", late]')]).toEqual([
      ["1", "-2"],
      ["true"],
      ["1", "late"],
    ]);
  });

  test.each(["2026-11-5", "2026-13-17"])("a date in expect that no run has is refused: %s", (date) => {
    const spec = `params: { ds: "\${today}" }\n${withChecks(`{ expect: [{ ds: ${date}, reason: why }] }`)}`;
    expect(specRefusal(spec)).toMatch(new RegExp(`checks\\.expect.*\`ds\` is a date such as .*, and ${date} is not`));
  });

  test("checks that hold a run replace the default of max_rejects", () => {
    const limits = ["", "checks: {}\n", "checks: { on_fail: warn }\n", "checks: {}\nmax_rejects: 5\n"].map(
      (more) => load(minimalSpec + more).max_rejects,
    );
    expect(limits).toEqual(["0.1%", "100%", "0.1%", 5]);
  });
});

function dateParamOf(params: string, given: Record<string, string> = {}): string | undefined {
  return loadSpec(`params: ${params}\n${minimalSpec}`, { file: "job.yaml", params: given, env: {}, nowMs: 0 })
    .dateParam;
}

test.each([
  ["{ ds: '${today}' }", "ds"],
  ["{ region: EU, day: '${yesterday}' }", "day"],
  ["{ region: EU }", undefined],
  ["{ file: 'x-${today}' }", undefined],
  ["{ ds: { type: date, default: '${today}' }, other: '${yesterday}' }", "ds"],
  ["{ other: '${today}', ds: { type: date, default: 2026-01-31 } }", "ds"],
  ["{ region: { type: enum, values: [a], default: a }, ds: '${today - 2d}' }", "ds"],
  ["{ top: { type: integer, default: 1 }, file: '${DS:-today}' }", undefined],
])("the logical date of %s is the param %s, whether a date is given or not", (params, name) => {
  expect(dateParamOf(params)).toBe(name);
  const given = name === undefined ? {} : { [name]: "2026-11-20" };
  expect(dateParamOf(params, given)).toBe(name);
});

test("a param of type date has its default as value, and takes dates only", () => {
  const spec = `params: { ds: { type: date, default: "\${today}" } }\n${minimalSpec}`;
  expect(load(spec).params).toEqual({ ds: "2026-11-21" });
  expect(load(spec, { params: { ds: "2026-01-31" } }).params).toEqual({ ds: "2026-01-31" });
  expect(specRefusal(spec, { params: { ds: "20260131" } })).toMatch(
    /params\.ds: found 20260131, expected a date such as 2026-11-23/,
  );
});

const draft: SpecDraft = {
  schema: "./infer-batch.schema.json",
  command: "infer-batch run job.yaml",
  name: "churn",
  inputPath: ["data/*.parquet"],
  model: { path: "churn.onnx", sha256: "d".repeat(64), inputs: { input: ["a", "b"] }, outputs: { score: "score" } },
  types: new Map(),
  columns: ["id"],
  target: { parquet: "out/dt=${ds}" },
  notes: [],
};

test("what a file calls its columns and tensors stays a name, even if YAML or the spec would read it as something else", () => {
  const names = ["${HOME}", "$${x}", "a: b", "- a", "# a", "'a\"", "*a", "&a", "yes", "007", "null", "a\nb", " a "];
  const model = { ...draft.model, inputs: { "in: put # 1": names }, outputs: { score: "${HOME}[0]" } };
  const { inputs, outputs } = load(draftSpec({ ...draft, model, notes: ["a\nb: c", "\u0000"] })).model;
  expect([inputs, outputs]).toEqual([model.inputs, model.outputs]);
});

test("several patterns, folders with params and tables stay what they are", () => {
  const inputPath = ["a b/*.parquet", "dt=${ds}/*.parquet"];
  const postgres = { url: "postgres://db.example/x", table: "predictions.churn" };
  const spec = load(draftSpec({ ...draft, inputPath, target: { postgres } }), { params: { ds: "2026-11-20" } });
  expect(spec.input.path).toEqual(["a b/*.parquet", "dt=2026-11-20/*.parquet"]);
  expect(spec.output.postgres).toMatchObject(postgres);
  expect(load(draftSpec(draft)).output.parquet?.path).toBe("out/dt=2026-11-21");
});

const { status, stdout } = spawnSync("git", ["ls-files", "*.yaml"], { cwd: projectFolder, encoding: "utf8" });
const read = (path: string): string => readFileSync(join(projectFolder, path), "utf8");
const specs = stdout.split("\n").filter((path) => path !== "" && /^version: 1$/m.test(read(path)));

test.skipIf(status !== 0).each(specs)("the JSON Schema for editors accepts %s", (path) => {
  expect(schemaErrors(parse(read(path)))).toEqual([]);
});

const minimal = {
  version: 1,
  name: "daily-churn",
  input: { path: "features/*.parquet" },
  model: { path: "models/churn.onnx" },
  output: { parquet: { path: "out" } },
};
const table = { table: "a.b", mode: "append" };

test.each<[string, object]>([
  ["a URL from the environment", { output: { postgres: { url: "${DATABASE_URL}", ...table } } }],
  ["params in a list of paths", { input: { path: ["a/dt=${ds}/*.parquet", "b/${ds}.parquet"] } }],
  ["a digest from a param", { model: { path: "m.onnx", sha256: "${digest}" } }],
  ["a param in the name of a table", { output: { postgres: { ...table, table: "scores.daily_${region}" } } }],
  ["a param where one of a few words is due", { output: { postgres: { ...table, mode: "${mode}" } } }],
  ["a provider from a param", { engine: { providers: ["${provider}", "cpu"] } }],
  ["a number from a param", { commit_rows: "${rows}" }],
])("the JSON Schema for editors accepts %s", (_, part) => {
  expect(schemaErrors({ ...minimal, ...part })).toEqual([]);
});

test.each<[string, object, RegExp]>([
  ["a misspelt key", { cheks: {} }, /cheks/],
  ["a key from a param", { input: { path: "a", columns: { "${name}": "1" } } }, /\/input\/columns/],
  ["an unknown mode", { output: { postgres: { ...table, mode: "upsrt" } } }, /\/output\/postgres\/mode/],
  ["a digest that is too short", { model: { path: "m.onnx", sha256: "abc" } }, /\/model\/sha256/],
  ["a number for a path", { input: { path: 7 } }, /\/input\/path/],
])("the JSON Schema for editors refuses %s", (_, part, error) => {
  expect(schemaErrors({ ...minimal, ...part }).join("\n")).toMatch(error);
});

const engineOf = (text: string): unknown => load(`${minimalSpec}engine: ${text}\n`).engine;

test.each([
  ["[cuda]", ["cuda"]],
  ["[cuda, cpu]", ["cuda", "cpu"]],
  ["[tensorrt, cuda, cpu]", ["tensorrt", "cuda", "cpu"]],
  ["[cuda, tensorrt]", ["cuda", "tensorrt"]],
])("engine takes the providers %s in this order", (text, providers) => {
  expect(engineOf(`{ providers: ${text} }`)).toMatchObject({ providers });
});

test.each([
  ["1", 1],
  ["worker", "worker"],
  ['"${gpu}"', 3],
])("engine takes the device %s", (text, device) => {
  const spec = load(`${minimalSpec}engine: { providers: [cuda], device_id: ${text} }\nparams: { gpu: 3 }\n`);
  expect(spec.engine.device_id).toBe(device);
});

test.each([
  ["auto", "auto"],
  ["64MiB", 64 * 1024 ** 2],
  ["512MiB", 512 * 1024 ** 2],
  ["1.5GiB", 1.5 * 1024 ** 3],
  ['"${size}"', 2 * 1024 ** 3],
])("engine takes the memory %s", (text, memory) => {
  const spec = load(`${minimalSpec}engine: { memory: ${text} }\nparams: { size: 2GiB }\n`);
  expect(spec.engine.memory).toBe(memory);
});

test.each(["2GB", "32MiB", "2048", "-1GiB", "[1GiB]"])("engine refuses the memory %s, with its place", (text) => {
  expect(() => load(`${minimalSpec}engine:\n  memory: ${text}\n`)).toThrow(
    /job.yaml:\d+:11: engine.memory: found .*, expected auto or a size from 64MiB, such as 512MiB or 2GiB/,
  );
});

test("engine accepts settings that an earlier release refused", () => {
  const text = `${minimalSpec}on_bad_row: fail\nengine: { providers: [cpu], device_id: 0 }\n`
    .replace("output:", "output:\n  lineage: false")
    .replace("input:", "input:\n  format: parquet\n  verify: pinned")
    .replace("model:", "model:\n  cast: exact\n  missing: bad_row");
  expect(load(text)).toEqual({ ...load(minimalSpec), input: { ...load(minimalSpec).input, format: "parquet" } });
});

describe("model.path", () => {
  test.each([
    ["hf://org/repo/model.onnx", { repo: "org/repo", revision: undefined, path: "model.onnx" }],
    ["hf://org/repo@v1.0/onnx/model.onnx", { repo: "org/repo", revision: "v1.0", path: "onnx/model.onnx" }],
    ["hf://org/repo@refs%2Fpr%2F1/m.onnx", { repo: "org/repo", revision: "refs/pr/1", path: "m.onnx" }],
  ])("%s names a repository, a revision and a file", (uri, parts) => {
    expect(modelUriProblem(uri)).toBeUndefined();
    expect(parseHubUri(uri)).toEqual(parts);
  });

  test.each([
    ["models:/churn@champion", { kind: "alias", name: "churn", alias: "champion" }],
    ["models:/churn model/7", { kind: "version", name: "churn model", version: "7" }],
    ["models:/churn/1.2.0", { kind: "version", name: "churn", version: "1.2.0" }],
    ["models:/churn/latest", { kind: "latest", name: "churn" }],
    ["models:/m-4bf86acf", { kind: "logged", id: "m-4bf86acf" }],
    ["runs:/4bf8/models/churn/", { kind: "run", runId: "4bf8", path: "models/churn" }],
  ])("%s names a model of MLflow", (uri, parts) => {
    expect(modelUriProblem(uri)).toBeUndefined();
    expect(parseMlflowUri(uri)).toEqual(parts);
  });

  test.each(["https://models.example.com/a/churn.onnx", "http://10.0.0.7:8080/m.onnx?version=3", "models/churn.onnx"])(
    "%s is taken",
    (path) => {
      expect(modelUriProblem(path)).toBeUndefined();
    },
  );

  test.each([
    "hf://org/repo",
    "hf://org/model.onnx",
    "hf://org/repo/../secret.onnx",
    "https://user:pass@models.example.com/churn.onnx",
    "https://store.example.com/churn.onnx?X-Amz-Signature=abc",
    "https://account.blob.core.windows.net/c/m.onnx?sv=2024&sig=abc",
    "https://",
    "models:/churn",
    "models:/churn/Production",
    "models:/main.ml.churn/7",
    "models://profile@databricks/churn/7",
    "runs:/r7",
    "runs:/r7/../secret",
    "azureml://registries/r/models/m/versions/1",
    "arn:aws:sagemaker:eu-west-1:1:model-package/m/1",
    "gcs://bucket/m.onnx",
    "s3a://bucket/m.onnx",
  ])("%s is refused, with what to write or do", (path) => {
    expect(modelUriProblem(path)).toMatchSnapshot();
  });
});

const withReport = (report: string): string => `${minimalSpec}report: ${report}\n`;

describe("report", () => {
  test("a spec without report has an empty report", () => {
    expect(load(minimalSpec).report).toEqual({
      on_success: "",
      on_failure: "",
      on_held: "",
      on_late: "",
      method: "get",
      timeout: 10,
    });
  });

  test("report takes URLs from the environment, and none where a variable is empty", () => {
    const text = withReport('{ on_success: "${PING}", on_failure: "${OTHER:-}" }');
    const { on_success, on_failure } = load(text, { env: { PING: "https://hc.example/4b6f" } }).report;
    expect([on_success, on_failure]).toEqual(["https://hc.example/4b6f", ""]);
  });

  test.each([
    ["{ on_success: hc.example/4b6f-secret }"],
    ["{ on_failure: ftp://hc.example/4b6f-secret }"],
    ["{ on_failure: https://me:4b6f-secret@hc.example/ }"],
    ['{ on_success: "${PING}" }'],
    ['{ deadline: "06:00", on_late: hc.example/4b6f-secret }'],
  ])("report refuses a URL that is none without showing it: %s", (report) => {
    const said = specRefusal(withReport(report), { env: { PING: "4b6f-secret" } });
    expect(said).toMatch(
      /^64 SPEC_INVALID\nreading job\.yaml:\d+:\d+: report\.on_\w+: found .*, expected http\(s\):\/\/host/,
    );
    expect(said).not.toContain("4b6f");
  });

  test.each([
    ["{ html: s3://bucket/report.html }", "expected a path on this machine"],
    ["{ metrics: churn.txt }", "expected a name that ends in .prom"],
    ["{ timeout: 61 }", "expected a number from 1 to 60"],
    ["{ deadline: 6am }", 'expected a time of day such as "06:00"'],
    ["{ on_late: 'http://hc.example' }", "expected `deadline` as well"],
    ["{ on_sucess: x }", "did you mean `on_success`?"],
  ])("%s is refused: %s", (report, expected) => {
    expect(specRefusal(withReport(report))).toContain(expected);
  });
});

test("report.openlineage has a URL and a namespace", () => {
  const text = withReport("{ openlineage: { url: 'http://marquez:5000' } }");
  expect(load(text).report.openlineage).toEqual({ url: "http://marquez:5000", namespace: "default" });
});

test("report.openlineage refuses an invalid URL without showing it", () => {
  const said = specRefusal(withReport("{ openlineage: { url: 4b6f-secret } }"));
  expect(said).toMatch(/report\.openlineage\.url: .*expected http\(s\):\/\/host/);
  expect(said).not.toContain("4b6f");
});

const server = (keys = ""): string => `  server: { protocol: openai, url: "http://vllm:8000", name: org/m${keys} }\n`;
const spec = (keys: string, ofServer = ""): string =>
  minimalSpec.replace("  path: model.onnx\n", `${server(ofServer)}${keys}`);
const user = '  prompt: { user: "{{body}}" }\n';

describe("model.prompt", () => {
  test("the columns of a prompt are the model's inputs", () => {
    const { model } = load(spec('  prompt: { system: "You are {{role}}.", user: "{{a}} {{ b.c }} {{a}}" }\n'));
    expect(model.inputs).toEqual({ role: ["role"], a: ["a"], "b.c": ["b.c"] });
    expect(modelUri(model)).toBe("openai:org/m");
  });

  test("columns of a response are texts unless they have another type", () => {
    const { model } = load(
      spec(`${user}  response: { label: { enum: [a, b] }, share: { type: number, minimum: 0 } }\n`),
    );
    expect(model.response).toEqual({
      label: { type: "string", enum: ["a", "b"] },
      share: { type: "number", minimum: 0 },
    });
  });

  test("sampling takes keys that only the server knows", () => {
    const { model } = load(
      spec(`${user}  sampling: { max_tokens: 5, top_k: 3, chat_template_kwargs: { enable_thinking: false } }\n`),
    );
    expect(model.sampling).toEqual({ max_tokens: 5, top_k: 3, chat_template_kwargs: { enable_thinking: false } });
  });

  test.each([
    ["no prompt", spec("")],
    ["a prompt for another protocol", minimalSpec.replace("  path: model.onnx\n", `  path: model.onnx\n${user}`)],
    ["a prompt without a column", spec("  prompt: { user: Hello }\n")],
    ["a place that does not end", spec('  prompt: { user: "{{body" }\n')],
    ["a place without a name", spec('  prompt: { user: "{{ }} {{body}}" }\n')],
    ["two texts for the user", spec('  prompt: { user: "{{body}}", file: prompt.txt }\n')],
    ["a system message for embeddings", spec('  prompt: { system: Hi, input: "{{body}}" }\n')],
    ["inputs beside a prompt", spec(`${user}  inputs: { a: [b] }\n`)],
    ["outputs beside a prompt", spec(`${user}  outputs: { a: b }\n`)],
    ["a response for embeddings", spec('  prompt: { input: "{{body}}" }\n  response: { label: {} }\n')],
    ["an empty response", spec(`${user}  response: {}\n`)],
    ["an enum of numbers", spec(`${user}  response: { label: { type: number, enum: [a] } }\n`)],
    ["limits of a text", spec(`${user}  response: { label: { minimum: 1 } }\n`)],
    ["a misspelt key of a response", spec(`${user}  response: { label: { maximun: 1 } }\n`)],
    [
      "a response named as a carried column",
      spec(`${user}  response: { id: {} }\n`).replace("output:", "output:\n  columns: [id]"),
    ],
    ["a key of requests in sampling", spec(`${user}  sampling: { stream: true }\n`)],
    ["two limits of an answer", spec(`${user}  sampling: { max_tokens: 1, max_completion_tokens: 1 }\n`)],
    ["a budget without a limit of answers", spec(`${user}  budget: { max_tokens: 1000 }\n`)],
    ["a cost without a price", spec(`${user}  sampling: { max_tokens: 5 }\n  budget: { max_cost: 5 }\n`)],
    ["golden rows", spec(user).concat("checks: { golden: { path: g.parquet } }\n")],
    [
      "a language model as challenger",
      `${spec(user)}challenger: { server: { protocol: openai, url: "http://a", name: m } }\n`,
    ],
    ["a path for openai", spec(user, ", path: /v1")],
    [
      "tries for another protocol",
      minimalSpec.replace("  path: model.onnx\n", '  server: { protocol: v2, url: "http://a", name: m, tries: 3 }\n'),
    ],
  ])("a spec with %s is refused", (_what, text) => {
    expect(specRefusal(text)).toMatchSnapshot();
  });
});
