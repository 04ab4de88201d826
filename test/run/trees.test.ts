import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { writeArrow } from "../support/arrow.js";
import { expectEnd, projectFolder, runCli } from "../support/cli.js";
import { scratch, scratchFolder } from "../support/job.js";
import { outputRows } from "../support/output.js";
import { query, type Row, writeRows } from "../support/parquet.js";
import { pipeHere, rowsOf } from "../support/pipe.js";
import { scoreHere } from "../support/score.js";

/** What the bundle is made of: the preload below reaches its ONNX Runtime. */
const modules = join(projectFolder, "dist/cli/main.js");
/** So many that ONNX Runtime takes many times as long as compiling does, or as a busy machine takes to open the model. */
const rows = 80_000;
const names = Array.from({ length: 32 }, (_, index) => `f${index}`);
/** Each feature in its own way, some missing; the last rows repeat the first. */
const select = `SELECT i AS id, ${names.map((name, index) => `CASE WHEN hash(r, ${index}) % 50 = 7 THEN NULL ELSE (hash(r, ${index}) % 100000)::DOUBLE / 1e4 - 5 END::FLOAT AS ${name}`).join(", ")} FROM (SELECT i, i % 16000 AS r FROM range(${rows}) AS t(i))`;

async function writeJob(folder: string, { engine = {} }: { engine?: object }): Promise<string> {
  await mkdir(join(folder, "in"), { recursive: true });
  await writeRows(join(folder, "in/part-00000.parquet"), select);
  const spec = {
    version: 1,
    name: "trees",
    input: { path: "in/*.parquet" },
    model: {
      path: join(projectFolder, "fixtures/models/bench-lightgbm.onnx"),
      outputs: { score: "probabilities[1]", label: "label" },
      missing: "nan",
    },
    engine: { threads: 1, ...engine },
    output: { columns: ["id"], parquet: { path: "out" } },
  };
  await writeFile(join(folder, "job.yaml"), JSON.stringify(spec));
  return join(folder, "job.yaml");
}

/** The folder of a job that ONNX Runtime alone has scored. */
let expected: Awaited<ReturnType<typeof scratchFolder>>;

beforeAll(async () => {
  expected = await scratchFolder();
  const report = await scoreHere(await writeJob(expected.path, { engine: { trees: "onnxruntime" } }));
  expect(report).toMatchObject({ trees: null, rowsByTrees: 0, rowsScored: rows });
  expect(await outputRows(join(expected.path, "out"))).toHaveLength(rows);
}, 60_000);
afterAll(() => expected[Symbol.asyncDispose]());

/** Expects the same rows in the outputs of two jobs, in the same order. (`toEqual` of so many takes longer than scoring them.) */
async function expectSameRows(one: string, other: string): Promise<void> {
  const [first, second] = [one, other].map((folder) => `(FROM read_parquet('${folder}/out/*.parquet'))`);
  const changed = await query(
    `SELECT a, b FROM ${first} a POSITIONAL JOIN ${second} b WHERE a IS DISTINCT FROM b LIMIT 1`,
  );
  expect(changed).toEqual([]);
}

/** The first row that is another one than expected. (`toEqual` of so many rows takes longer than scoring them.) */
function firstChanged(found: readonly Row[], due: readonly Row[]): object | undefined {
  const length = Math.max(found.length, due.length);
  const index = Array.from({ length }, (_, at) => at).find((at) => !isDeepStrictEqual(found[at], due[at]));
  return index === undefined ? undefined : { index, found: found[index], due: due[index] };
}

async function providersOf(folder: string): Promise<unknown[]> {
  const labels = await query(
    `SELECT decode(value)::VARCHAR AS label FROM parquet_kv_metadata('${folder}/out/*.parquet') WHERE decode(value) LIKE '%provider%'`,
  );
  return [
    ...new Set(
      labels.map(({ label }) => (JSON.parse(String(label)) as { maker: { provider: string } }).maker.provider),
    ),
  ];
}

test("a job of a model with trees is scored by compiled trees as ONNX Runtime scores it, and says so in report and labels", async () => {
  const report = await scoreHere(await writeJob(scratch.path, {}));

  expect(report).toMatchObject({ trees: "compiled", provider: "cpu", rowsScored: rows });
  expect(report.rowsByTrees).toBeGreaterThan(rows / 2);
  await expectSameRows(scratch.path, expected.path);
  expect(await providersOf(scratch.path)).toEqual([
    report.rowsByTrees === rows ? "cpu, compiled trees" : "cpu, partly compiled trees",
  ]);
});

test("a job of a model with trees gives the same in a pipe", async () => {
  const spec = await writeJob(scratch.path, {});
  const path = join(scratch.path, "in.arrows");
  await writeArrow(path, select, { kind: "stream", batchRows: 5000 });
  const { output, error } = await pipeHere(spec, await readFile(path));

  expect(error).toBeUndefined();
  expect(firstChanged(rowsOf(output), await outputRows(join(expected.path, "out")))).toBeUndefined();
});

test("a job of a model with trees gives the same where ONNX Runtime encodes texts before the trees", async () => {
  const colours = "['red', 'grün', 'blue', 'none of these']";
  const texts = `SELECT i AS id, ${colours}[(1 + hash(i) % 4)::INTEGER] AS colour, (hash(i, 0) % 100000)::DOUBLE / 1e4 - 5 AS x0, (hash(i, 1) % 100000)::DOUBLE / 1e4 - 5 AS x1 FROM range(${rows}) AS t(i)`;
  const folders = ["onnxruntime", "auto"].map((trees) => ({ trees, folder: join(scratch.path, trees) }));
  for (const { trees, folder } of folders) {
    await mkdir(join(folder, "in"), { recursive: true });
    await writeRows(join(folder, "in/part-00000.parquet"), texts);
    const spec = {
      version: 1,
      name: "texts",
      input: { path: "in/*.parquet" },
      model: { path: join(projectFolder, "fixtures/trees/encoded-texts.onnx"), cast: "lossy" },
      engine: { threads: 1, trees },
      output: { columns: ["id"], parquet: { path: "out" } },
    };
    await writeFile(join(folder, "job.yaml"), JSON.stringify(spec));
    const report = await scoreHere(join(folder, "job.yaml"));
    expect(report.trees).toBe(trees === "auto" ? "compiled" : null);
    expect(report.rowsScored).toBe(rows);
  }
  await expectSameRows(folders[0]?.folder ?? "", folders[1]?.folder ?? "");
});

test("a job of a model with trees is scored by ONNX Runtime, with a warning, where the compiled trees differ from it", async () => {
  // Sessions that check the trees are made of a part of the model, in memory: these give other scores. Only threads that
  // have sessions load ONNX Runtime: others may be terminated, and Node aborts when one is that loads a native library.
  const preload = join(scratch.path, "other-scores.mjs");
  await writeFile(
    preload,
    `import { createRequire } from "node:module";
      import { isMainThread } from "node:worker_threads";
      if (!isMainThread && /scoring-worker/.test(process.argv[1])) {
        const { InferenceSession } = createRequire(${JSON.stringify(join(projectFolder, "package.json"))})("onnxruntime-node");
        const create = InferenceSession.create.bind(InferenceSession);
        InferenceSession.create = async (model, ...rest) => {
          const session = await create(model, ...rest);
          const run = session.run.bind(session);
          session.run = async (...args) => {
            const outputs = await run(...args);
            if (typeof model !== "string") {
              Object.values(outputs).find(({ type }) => type === "float32").data[5] += 0.25;
            }
            return outputs;
          };
          return session;
        };
      }`,
  );
  const args = ["run", await writeJob(scratch.path, {}), "--json"];
  const { stdout, stderr } = await expectEnd(runCli(args, { program: modules, node: [`--import=${preload}`] }), 0);
  const reason = String.raw`\S+ differs from ONNX Runtime's for rows made of the model's thresholds: row 2: [\d.]+, not [\d.]+`;
  const warning = `checking the compiled trees of \\S*bench-lightgbm.onnx: ${reason}; ONNX Runtime computes them in this attempt`;
  expect(stderr).toMatch(new RegExp(warning));
  expect(JSON.parse(stdout)).toMatchObject({
    rows_by_trees: 0,
    trees: expect.stringMatching(new RegExp(`^onnxruntime: ${reason}$`)),
  });
  await expectSameRows(scratch.path, expected.path);
  expect(await providersOf(scratch.path)).toEqual(["cpu"]);
});
