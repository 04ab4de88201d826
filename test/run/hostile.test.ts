import { appendFile, link, mkdir, readdir, readFile, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import type { CliResult } from "../support/cli.js";
import { fixtures, scratch, scratchFolder, writeSpec } from "../support/job.js";
import { type SmallModel, writeModel } from "../support/onnx.js";
import { writeRows } from "../support/parquet.js";
import { runSpec } from "../support/score.js";
import { ownJob } from "../support/world.js";
import { expectEnd } from "../support/cli.js";

const small = { name: "small", table: "", model: "", rows: 0, outputs: { score: "score" } };

const oneInput: SmallModel = {
  inputs: [{ name: "x", dtype: "float32", shape: ["N", 1] }],
  outputs: [{ name: "score", dtype: "float32", shape: ["N", 1] }],
  nodes: [{ op: "Identity", from: ["x"], to: "score" }],
};

/** A job in `<folder>/job` over one shard with column x, and the model that `make` writes. */
async function hostileJob(folder: string, make: (model: string) => Promise<unknown>): Promise<string> {
  const home = join(folder, "job");
  await mkdir(join(home, "in"), { recursive: true });
  await writeRows(join(home, "in/a.parquet"), "SELECT range AS id, range::FLOAT AS x FROM range(10)");
  await make(join(home, "model.onnx"));
  return await writeSpec(home, small, { input: { path: "in/*.parquet" }, model: { path: "model.onnx" } });
}

interface Hostile {
  readonly what: string;
  readonly make: (model: string) => Promise<unknown>;
  readonly says: RegExp;
  /** It is read with a small heap, which a process of its own has. */
  readonly isLarge?: true;
}

/** A length-delimited field (number < 16) that says it is `length` long and holds `bytes`. */
const field = (number: number, length: number, bytes: Uint8Array = Buffer.alloc(0)): Buffer => {
  const size: number[] = [];
  for (let rest = length; ; rest = Math.floor(rest / 128)) {
    size.push((rest % 128) + (rest >= 128 ? 128 : 0));
    if (rest < 128) {
      return Buffer.concat([Buffer.from([number * 8 + 2, ...size]), bytes]);
    }
  }
};

/** Graphs in attributes of nodes of graphs, `deep` of them. */
function nestedGraphs(deep: number): Buffer {
  let graph: Buffer = Buffer.alloc(0);
  for (let level = 0; level < deep; level += 1) {
    const attribute = field(6, graph.length, graph);
    const node = field(5, attribute.length, attribute);
    graph = field(1, node.length, node);
  }
  return field(7, graph.length, graph);
}

async function externalModel(model: string, location: string): Promise<void> {
  await writeModel(model, {
    ...oneInput,
    nodes: [{ op: "Add", from: ["x", "bias"], to: "score" }],
    constants: [{ name: "bias", length: 1, location }],
  });
}

const manyInputs = (count: number): SmallModel => ({
  ...oneInput,
  inputs: Array.from({ length: count }, (_, index) => ({ name: `x${index}`, dtype: "float32", shape: ["N", 1] })),
  nodes: [{ op: "Identity", from: ["x0"], to: "score" }],
});

const hostile: readonly Hostile[] = [
  { what: "of 0 bytes", make: (model) => writeFile(model, ""), says: /it is not an ONNX file/ },
  {
    what: "of 64 MiB of zeros",
    make: (model) => writeFile(model, Buffer.alloc(1 << 26)),
    says: /it is not an ONNX/,
    isLarge: true,
  },
  {
    what: "whose graph says it has 4 GiB",
    make: (model) => writeFile(model, field(7, 2 ** 32 - 1)),
    says: /not an ONNX/,
    isLarge: true,
  },
  {
    what: "whose name says it has 2 GiB",
    make: (model) => writeFile(model, field(2, 2 ** 31)),
    says: /not an ONNX/,
    isLarge: true,
  },
  {
    what: "whose tensor says it has 2 GiB",
    make: async (model) => {
      await writeModel(model, oneInput);
      const tensor = field(5, 20, field(9, 2 ** 31 - 1, Buffer.alloc(14)));
      await appendFile(model, field(7, tensor.length, tensor));
    },
    says: /not an ONNX file/,
    isLarge: true,
  },
  {
    what: "nested 5,000 deep",
    make: (model) => writeFile(model, nestedGraphs(5000)),
    says: /it is not an ONNX file/,
    isLarge: true,
  },
  {
    what: "with 10,000 inputs",
    make: (model) => writeModel(model, manyInputs(10_000)),
    says: /binding .*model\.onnx/,
    isLarge: true,
  },
  {
    what: "with its weights in a folder that is a link elsewhere",
    make: async (model) => {
      await mkdir(join(model, "../../secret"));
      await writeFile(join(model, "../../secret/w.bin"), "1234");
      await symlink("../secret", join(model, "../weights"));
      await externalModel(model, "weights/w.bin");
    },
    says: /external data `weights\/w\.bin` is outside the model's folder/,
  },
  {
    what: "with its weights in another file by a hard link",
    make: async (model) => {
      await writeFile(join(model, "../../secret.bin"), "1234");
      await link(join(model, "../../secret.bin"), join(model, "../w.bin"));
      await externalModel(model, "w.bin");
    },
    says: /external data `w\.bin` is a hard link/,
  },
  {
    what: "with its weights at an absolute path",
    make: (model) => externalModel(model, "/etc/hostname"),
    says: /external data `\/etc\/hostname` is outside the model's folder/,
  },
];

describe("a model", () => {
  test.each(hostile)("$what is refused with 64 before anything is written", async ({ make, says, isLarge = false }) => {
    const spec = await hostileJob(scratch.path, make);
    const before = (await readdir(scratch.path, { recursive: true })).toSorted();
    const start = performance.now();

    const options = isLarge ? { node: ["--max-old-space-size=512"] } : {};
    const { stderr, stdout } = await expectEnd(runSpec(spec, options), 64, says);
    expect(JSON.parse(stdout)).toMatchObject({ status: "failed", exit_code: 64 });
    expect(stderr.length, "what is said stays readable").toBeLessThan(20_000);
    expect(performance.now() - start).toBeLessThan(100_000);
    expect((await readdir(scratch.path, { recursive: true })).toSorted()).toEqual(before);
  });
});

describe("a spec", () => {
  test.each<[string, object]>([
    [
      "an output that a param leads out of its folder",
      { params: { p: "../../elsewhere" }, output: { parquet: { path: "out/${p}" } } },
    ],
    ["an output with a NUL in its name", { output: { parquet: { path: "o\0ut" } } }],
    ["an output whose name is too long", { output: { parquet: { path: "x".repeat(300) } } }],
    ["an output that is a device", { output: { parquet: { path: "/dev/null" } } }],
    ["an input whose name is too long", { input: { path: `${"x".repeat(300)}.parquet` } }],
    ["an input that never ends", { input: { path: "/dev/zero" } }],
    ["a name with a / in it", { name: "a/b" }],
    ["a name that a param leads elsewhere", { params: { p: "../x" }, name: "${p}" }],
    ["a name of two lines", { name: "a\nb" }],
  ])("a spec with %s is refused with 64 before anything is written", async (_, overrides) => {
    await using folder = await scratchFolder();
    await mkdir(join(folder.path, "job"));
    const [fixture = small] = fixtures;
    const spec = await writeSpec(join(folder.path, "job"), fixture, overrides as Record<string, object>);

    await expectEnd(runSpec(spec), 64);
    expect((await readdir(folder.path, { recursive: true })).toSorted()).toEqual(["job", "job/job.yaml"]);
  });

  test("an output folder with quotes, a newline and brackets in its name gets all files of the run", async () => {
    const job = await ownJob(scratch.path, "wine-forest", {
      params: { p: `o'; DROP "x"\n[a]*` },
      output: { parquet: { path: "${p}" } },
      commit_rows: 100,
    });
    for (const status of ["complete", "already_complete"]) {
      expect((await runSpec(job.spec)).summary).toMatchObject({ status });
    }
    const names = await readdir(scratch.path);
    expect(names.toSorted()).toEqual(["in", "job.yaml", "model.onnx", `o'; DROP "x"\n[a]*`]);
  });

  test("a run that another attempt began is finished in an output folder with wildcards in its name", async () => {
    const job = await ownJob(scratch.path, "wine-forest", {
      output: { parquet: { path: "[a]*?" } },
      commit_rows: 100,
      checks: { unique: ["id"] },
    });
    for (const [args, status] of [
      [["--worker", "0/2"], "partial"],
      [[], "complete"],
      [["--new-run"], "complete"],
    ] as const) {
      const { summary } = await expectEnd(runSpec(job.spec, { args }), 0);
      expect(summary).toMatchObject({ status });
    }
  });
});

const secret = "s3cr3t-9f27ac";

/** Everything that was printed and written, in one. */
async function everything(folder: string, results: readonly CliResult[]): Promise<string> {
  const texts = results.map(({ stdout, stderr }) => stdout + stderr);
  for (const entry of await readdir(folder, { recursive: true, withFileTypes: true })) {
    texts.push(entry.name);
    if (entry.isFile()) {
      texts.push(await readFile(join(entry.parentPath, entry.name), "latin1"));
    }
  }
  return texts.join("\n");
}

const loud = {
  args: ["--log-level", "debug"],
  env: { AWS_SECRET_ACCESS_KEY: secret, DATABASE_URL: `postgres://u:${secret}@db/x`, PGPASSWORD: secret },
};

test("values of the environment are in no output, plan, manifest, part or message of a run", async () => {
  const job = await ownJob(scratch.path, "wine-forest", { commit_rows: 50 });
  const results = [await runSpec(job.spec, loud), await runSpec(job.spec, loud)];
  expect(results.map(({ code }) => code)).toEqual([0, 0]);
  expect(results[0]?.stderr).toContain("DEBUG");
  expect(await everything(scratch.path, results)).not.toContain(secret);
});

test.each<[string, number, (job: Awaited<ReturnType<typeof ownJob>>) => Promise<unknown>]>([
  ["the spec names what is not served", 64, (job) => job.rewrite({ output: { postgres: { url: "${DATABASE_URL}" } } })],
  ["a key has the wrong type", 64, (job) => job.rewrite({ commit_rows: "${PGPASSWORD}" })],
  ["a variable is misspelt", 64, (job) => job.rewrite({ commit_rows: "${PGPASSWORDS}" })],
  ["the model is none", 64, (job) => writeFile(job.model, "x")],
  ["a shard is damaged", 65, (job) => writeFile(job.shard(0), "PAR1 and no more PAR1")],
  ["the input is not there", 75, (job) => job.rewrite({ input: { path: "none/*.parquet" } })],
  [
    "the plan is damaged",
    66,
    async (job) => {
      await expectEnd(runSpec(job.spec, loud), 0);
      const plan = (await readdir(job.out, { recursive: true })).find((name) => name.endsWith("plan.json"));
      await writeFile(join(job.out, plan ?? ""), "{}");
    },
  ],
])("values of the environment are not in the message when %s", async (_, exit, spoil) => {
  await using folder = await scratchFolder();
  const job = await ownJob(folder.path, "wine-forest");
  await spoil(job);
  const result = await expectEnd(runSpec(job.spec, loud), exit);
  expect(await everything(folder.path, [result])).not.toContain(secret);
});

test("values of the environment are not in the message about a bug", async () => {
  const job = await ownJob(scratch.path, "wine-forest");
  const bug = `data:text/javascript,${encodeURIComponent(
    `const { reduce } = Array.prototype;
       Array.prototype.reduce = function (...given) {
         if (new Error().stack.includes(["run", "Job"].join(""))) throw new TypeError("a bug");
         return reduce.apply(this, given);
       };`,
  )}`;

  const result = await expectEnd(
    runSpec(job.spec, { ...loud, node: [`--import=${bug}`] }),
    1,
    "this is a bug in infer-batch",
  );
  expect(await everything(scratch.path, [result])).not.toContain(secret);
});
