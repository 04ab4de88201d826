import { spawn, spawnSync } from "node:child_process";
import { copyFile, mkdir, readdir, readFile, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { writeArrow } from "../support/arrow.js";
import { projectFolder, runCli } from "../support/cli.js";
import { differences } from "../support/golden.js";
import { identity } from "../support/faulty.js";
import { scratch } from "../support/job.js";
import { writeModel } from "../support/onnx.js";
import { outputRows } from "../support/output.js";
import { query, type Row, writeRows } from "../support/parquet.js";
import { pythonToolsOfTorture } from "../support/python-tools.js";

const spark = findSpark();
const example = join(projectFolder, "examples/spark");
const shards = join(projectFolder, "fixtures/data/cancer");

function findSpark(): { readonly python: string; readonly missing: string | undefined } {
  if (spawnSync("java", ["-version"]).status !== 0) {
    return { python: "", missing: "no Java" };
  }
  const { bin, missing } = pythonToolsOfTorture("spark", ["pyspark==4.3.0", "pyarrow==26.0.1", "pandas==2.3.3"]);
  return { python: join(bin, "python"), missing };
}

/** Runs a script with `infer-batch` on its path. */
async function python(folder: string, args: readonly string[]): Promise<{ code: number | null; said: string }> {
  await mkdir(join(folder, "bin"), { recursive: true });
  await symlink(join(projectFolder, "bin/infer-batch.js"), join(folder, "bin/infer-batch"));
  const child = spawn(spark.python, args, {
    cwd: folder,
    env: {
      ...process.env,
      PATH: `${join(folder, "bin")}:${process.env["PATH"] ?? ""}`,
      PYSPARK_PYTHON: spark.python,
      PYSPARK_SUBMIT_ARGS:
        "--master local[2] --driver-java-options '-XX:TieredStopAtLevel=1 -XX:+UseSerialGC' --conf spark.ui.enabled=false --conf spark.sql.execution.arrow.maxRecordsPerBatch=64 pyspark-shell",
      SPARK_LOCAL_IP: "127.0.0.1",
    },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let said = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (text: string) => {
      said += text;
    });
  }
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", resolve);
  });
  return { code, said };
}

const byId = (one: Row, other: Row): number => ((one["id"] as bigint) < (other["id"] as bigint) ? -1 : 1);

/** A spec whose model gives back a column. */
function specOf(feature: string, carried: readonly string[]): object {
  const model = { path: "model.onnx", inputs: { x: [feature] } };
  return { version: 1, name: "small", model, output: { columns: carried } };
}

const skipped = spark.missing === undefined ? "" : ` (skipped: ${spark.missing.split("\n")[0] ?? ""})`;

describe.skipIf(spark.missing !== undefined)(`examples/spark${skipped}`, () => {
  test("predicts inside Spark, in several tasks, what run predicts", { timeout: 600_000 }, async () => {
    const [input, output, job] = [
      join(scratch.path, "in"),
      join(scratch.path, "spark"),
      join(scratch.path, "job.yaml"),
    ];
    await mkdir(input);
    for (const name of await readdir(shards)) {
      await copyFile(join(shards, name), join(input, name));
    }
    // A partition without rows.
    await writeRows(join(input, "part-empty.parquet"), `SELECT * FROM '${shards}/part-00000.parquet' LIMIT 0`);
    const text = await readFile(join(example, "job.yaml"), "utf8");
    await writeFile(job, text.replaceAll("../../", `${projectFolder}/`));

    const { code, said } = await python(scratch.path, [join(example, "score.py"), job, input, output]);
    const ran = await runCli(["run", job, "--param", "out=ran", "--no-progress"]);

    expect(said.slice(-3000)).toMatchObject(code === 0 ? {} : said);
    expect(code).toBe(0);
    expect(ran.code, ran.stderr).toBe(0);
    const names = (await readdir(output)).filter((name) => name.endsWith(".parquet"));
    expect(names.length).toBeGreaterThan(1);
    const rows = await query(`SELECT * FROM '${output}/*.parquet'`);
    const expected = await outputRows(join(scratch.path, "ran"));
    expect(expected).toHaveLength(569);
    expect(differences(rows.toSorted(byId), expected.toSorted(byId))).toEqual([]);
  });

  test("a task fails with what infer-batch says, and pyarrow takes all that comes out of a pipe", {
    timeout: 300_000,
  }, async () => {
    await writeArrow(join(scratch.path, "bad.arrows"), "SELECT 1::BIGINT AS id, NULL::DOUBLE AS x", { kind: "stream" });
    const script = `
import sys, pyarrow as pa
sys.path.insert(0, ${JSON.stringify(example)})
from score import scored
with pa.ipc.open_stream("bad.arrows") as bad:
    batches = list(bad)
try:
    list(scored(["infer-batch", "pipe", "bad.yaml"], iter(batches)))
except RuntimeError as error:
    print(error)
list(scored(["infer-batch", "pipe", "reject.yaml"], iter(batches)))
with pa.ipc.open_stream(${JSON.stringify(join(projectFolder, "fixtures/arrow/plain.arrows"))}) as stream:
    batches = list(stream)
out = pa.Table.from_batches(scored(["infer-batch", "pipe", "types.yaml"], iter(batches)))
out.validate(full=True)
sent = pa.Table.from_batches(batches)
for name in sent.column_names:
    got, due = out[name].combine_chunks(), sent[name].combine_chunks()
    if name.startswith("for_"):
        due = due.cast(pa.int64())
    if hasattr(due, "dictionary_decode"):
        due = due.dictionary_decode()
    if got.to_pylist() != due.to_pylist() and (got.type == due.type or got.to_pylist() != due.cast(got.type).to_pylist()):
        print("differs:", name, got.type, due.type)
print(len(out.column_names), "columns of", len(out), "rows")
`;
    const described = await query(`DESCRIBE SELECT * FROM '${join(projectFolder, "fixtures/arrow/types.parquet")}'`);
    const columns = described.map((row) => String(row["column_name"]));
    await writeModel(join(scratch.path, "model.onnx"), identity);
    await writeFile(join(scratch.path, "bad.yaml"), JSON.stringify(specOf("x", ["id"])));
    await writeFile(
      join(scratch.path, "reject.yaml"),
      JSON.stringify({ ...specOf("x", ["id"]), on_bad_row: "reject", max_rejects: 1 }),
    );
    await writeFile(join(scratch.path, "types.yaml"), JSON.stringify(specOf("id", columns)));
    await writeFile(join(scratch.path, "check.py"), script);

    const { said } = await python(scratch.path, ["check.py"]);

    expect(said).toContain("infer-batch pipe ended with 65: error: scoring stdin: row 0, column `x` is NULL");
    expect(said).toContain("1 row: null in x");
    expect(said).not.toContain("differs");
    expect(said).toContain("55 columns of 60 rows");
  });
});
