import { appendFile, cp, mkdir, readFile, readdir, writeFile } from "node:fs/promises";
import { join, relative, resolve } from "node:path";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { describe, expect, test } from "vitest";
import { parse, stringify } from "yaml";
import { projectFolder, runHere } from "../support/cli.js";
import { differences, goldenRows } from "../support/golden.js";
import { scratch, scratchFolder } from "../support/job.js";
import { outputRows } from "../support/output.js";
import { upload } from "../support/s3-job.js";
import { mirror } from "../support/s3-target.js";
import { useS3 } from "../support/s3.js";
import { shownCli } from "../support/shown.js";
import { fixtureNamed } from "../support/world.js";

/** A folder with a model and shards, as a newcomer has them. */
async function newcomer(table: string, model: string): Promise<{ path: string } & AsyncDisposable> {
  const folder = await scratchFolder();
  await cp(join(projectFolder, "fixtures/data", table), join(folder.path, "data"), { recursive: true });
  await cp(join(projectFolder, "fixtures/models", model), join(folder.path, model));
  return folder;
}

describe("init", () => {
  test("init --checks also writes the keys of checks as comments, with which the spec runs", async () => {
    await using folder = await newcomer("cancer", "cancer-logistic.onnx");
    const cwd = folder.path;
    const args = ["init", "--model", "cancer-logistic.onnx", "--input", "data/*.parquet", "--checks"];
    expect((await runHere(args, { cwd })).code).toBe(0);
    const path = join(folder.path, "job.yaml");
    const text = await readFile(path, "utf8");
    expect(parse(text)).not.toHaveProperty("checks");
    await writeFile(path, text.replace(/^# (checks|report):\n# {3}/gm, "$1:\n  "));
    expect(parse(await readFile(path, "utf8"))).toMatchObject({
      checks: { unique: [expect.any(String)] },
      report: { html: "report.html" },
    });
    const run = await runHere(["run", "job.yaml", "--param", "ds=2026-11-20"], { cwd });
    expect([run.code, run.stderr]).toEqual([0, expect.any(String)]);
  });

  test("init writes a commented spec that runs as it is, and never replaces a file", async () => {
    await using folder = await newcomer("cancer", "cancer-logistic.onnx");
    const cwd = folder.path;
    const args = ["init", "--model", "cancer-logistic.onnx", "--input", "data/*.parquet"];
    expect(await shownCli(args, folder.path, { cwd })).toMatchSnapshot();
    const text = await readFile(join(folder.path, "job.yaml"), "utf8");
    expect(text.replaceAll(/\b[0-9a-f]{64}\b/g, "<sha256>")).toMatchSnapshot();
    const run = await runHere(["run", "job.yaml", "--param", "ds=2026-11-20"], { cwd });
    expect([run.code, run.stderr]).toEqual([0, expect.not.stringContaining("warn")]);
    const golden = await goldenRows(fixtureNamed("cancer-logistic"));
    expect(differences(await outputRows(join(folder.path, "out/dt=2026-11-20")), golden)).toEqual([]);

    const again = await runHere(args, { cwd });
    expect([again.code, again.stderr]).toEqual([64, expect.stringContaining("writing job.yaml: it already exists")]);
    expect(await readFile(join(folder.path, "job.yaml"), "utf8")).toBe(text);

    const [first = "", second = ""] = (await readdir(join(cwd, "data"))).map((name) => `data/${name}`);
    const expanded = await runHere(["init", "--model", "cancer-logistic.onnx", "--input", first, second], { cwd });
    expect([expanded.code, expanded.stderr]).toEqual([
      64,
      `error: writing ${second}: it is an input file, not a name for the spec\n  hint: put the pattern of --input in quotes: --input 'data/*.parquet'\n`,
    ]);
  });

  test("init writes ${ds} in place of the date in the input's path, and says for which date to plan", async () => {
    await using folder = await newcomer("cancer", "cancer-logistic.onnx");
    const cwd = folder.path;
    await cp(join(cwd, "data"), join(cwd, "in/dt=2026-11-20"), { recursive: true });
    const input = "in/dt=2026-11-20/*.parquet";
    const { code, stdout, stderr } = await runHere(["init", "--model", "cancer-logistic.onnx", "--input", input], {
      cwd,
    });
    expect(code, stderr).toBe(0);
    expect(stdout).toContain("infer-batch plan job.yaml --param ds=2026-11-20, then infer-batch run job.yaml --param");
    expect(stdout).not.toContain("all dates");
    expect(await readFile(join(cwd, "job.yaml"), "utf8")).toContain("path: in/dt=${ds}/*.parquet");
    expect((await runHere(["run", "job.yaml", "--param", "ds=2026-11-20"], { cwd })).code).toBe(0);
    for (const dates of ["*", "2026-11-2?", "2026-11-2[01]", "{2026-11-20,2026-11-21}"]) {
      const every = ["--model", "cancer-logistic.onnx", "--input", `in/dt=${dates}/*.parquet`];
      expect((await runHere(["init", `${dates.length}.yaml`, ...every], { cwd })).stdout, dates).toMatch(
        /^note {5}each run scores the files of all dates\. .* 2026-11-20: /m,
      );
    }
  });

  test.each([
    {
      what: "the date of the run is in the name of the input's folder",
      args: ["--input", "in/dt=2026-11-20/region=EU/*.parquet"],
      columns: "[id, region]",
      path: "out/dt=${ds}",
      note: /^note {5}dt is not carried through: the name of the output folder, out\/dt=\$\{ds\}, has it$/m,
    },
    {
      what: "the input has all dates",
      args: ["--input", "in/*/*/*.parquet"],
      columns: "[id, dt, region]",
      path: "out/ds=${ds}",
      note: /^note {5}each run scores the files of all dates/m,
    },
    {
      what: "the input is the folder of all dates",
      args: ["--input", "in/"],
      columns: "[id, dt, region]",
      path: "out/ds=${ds}",
      note: /^note {5}each run scores the files of all dates/m,
    },
    {
      what: "--columns names the column",
      args: ["--input", "in/dt=2026-11-20/region=EU/*.parquet", "--columns", "id,dt"],
      columns: "[id, dt]",
      path: "out/ds=${ds}",
      note: /^next/m,
    },
    {
      what: "--output names the folder",
      args: ["--input", "in/*/*/*.parquet", "--output", "o/region=all/day=${ds}"],
      columns: "[id, dt]",
      path: "o/region=all/day=${ds}",
      note: /^note {5}region is not carried through/m,
    },
    {
      what: "both are named",
      args: ["--input", "in/*/*/*.parquet", "--output", "o/DT=${ds}", "--columns", "id,dt"],
      columns: "[id, dt]",
      path: "o/DT=${ds}",
      note: /^note {5}the name of the output folder, o\/DT=\$\{ds\}, has output column `dt`, too: pandas and pyarrow cannot/m,
    },
  ])("init proposes no column that the name of the output folder has: $what", async ({ args, columns, path, note }) => {
    await using folder = await newcomer("cancer", "cancer-logistic.onnx");
    const cwd = folder.path;
    await cp(join(cwd, "data"), join(cwd, "in/dt=2026-11-20/region=EU"), { recursive: true });
    const { code, stdout, stderr } = await runHere(["init", "--model", "cancer-logistic.onnx", ...args], { cwd });
    expect([code, stderr]).toEqual([0, ""]);
    const text = await readFile(join(cwd, "job.yaml"), "utf8");
    expect(text).toContain(`  columns: ${columns} #`);
    expect(text).toContain(`    path: ${path} #`);
    expect(stdout).toMatch(note);
  });

  test("init takes the order of the columns from the model's metadata, MLmodel or a file beside it, and says which", async () => {
    await using folder = await newcomer("cancer", "cancer-logistic.onnx");
    const cwd = folder.path;
    const args = ["init", "--model", "cancer-logistic.onnx", "--input", "data/*.parquet"];
    const written = async (spec: string): Promise<{ names: readonly string[]; text: string; stdout: string }> => {
      const { code, stdout, stderr } = await runHere([...args, spec], { cwd });
      expect(code, stderr).toBe(0);
      const text = await readFile(join(cwd, spec), "utf8");
      const { model } = parse(text) as { model: { inputs: { input: readonly string[] } } };
      return { names: model.inputs.input, text, stdout };
    };
    const unknown = await written("a.yaml");
    for (const said of [unknown.stdout, unknown.text]) {
      expect(said).toMatch(
        /[Nn]ote:? +the columns of input input are in the order of the file, since the model does not/,
      );
    }

    const names = unknown.names.toReversed();
    await writeFile(join(cwd, "feature_names.json"), JSON.stringify(names));
    const beside = await written("b.yaml");
    expect(beside.names).toEqual(names);
    expect(beside.stdout).toContain("in the order of feature_names.json beside the model\n");

    const shuffled = names.toSorted();
    const inputs = JSON.stringify(shuffled.map((name) => ({ name, type: "double" })));
    await writeFile(join(cwd, "MLmodel"), stringify({ flavors: { onnx: {} }, signature: { inputs } }));
    const declared = await written("c.yaml");
    expect(declared.names).toEqual(shuffled);
    expect(declared.stdout).toContain("in the order of the model's signature in MLflow\n");

    // A field of a serialized message may follow all others: `metadata_props` is the 14th.
    const { LengthDelimited: text } = WireType;
    const entry = new BinaryWriter().tag(1, text).string("feature_names").tag(2, text).string(names.join(","));
    const field = new BinaryWriter().tag(14, text).bytes(entry.finish());
    await appendFile(join(cwd, "cancer-logistic.onnx"), field.finish());
    const inFile = await written("d.yaml");
    expect(inFile.names).toEqual(names);
    expect(inFile.text).toContain("in the order of feature_names in the model's metadata\n");
  });

  test("init names another folder where the folder out is there, whose run would refuse the new job's", async () => {
    await using folder = await newcomer("cancer", "cancer-logistic.onnx");
    const cwd = folder.path;
    await mkdir(join(cwd, "out"));
    const args = ["--model", "cancer-logistic.onnx", "--input", "data/*.parquet"];
    expect((await runHere(["init", ...args], { cwd })).code).toBe(0);
    expect(await readFile(join(cwd, "job.yaml"), "utf8")).toContain("path: out-cancer-logistic/dt=${ds}");
  });

  test("a second init in a folder gives its job another name and another folder, so that neither is in the other's way", async () => {
    await using folder = await newcomer("cancer", "cancer-logistic.onnx");
    const cwd = folder.path;
    const args = ["--model", "cancer-logistic.onnx", "--input", "data/*.parquet"];
    expect((await runHere(["init", ...args], { cwd })).code).toBe(0);
    expect((await runHere(["init", ...args, "other.yaml"], { cwd })).code).toBe(0);
    const text = await readFile(join(cwd, "other.yaml"), "utf8");
    expect(text).toMatch(/^name: cancer-logistic-2$/m);
    expect(text).toContain("path: out-cancer-logistic-2/dt=${ds}");
    const [model, input, third] = ["cancer-logistic.onnx", "data/*.parquet", "third.yaml"].map((one) => join(cwd, one));
    const named = ["--name", "cancer-logistic"];
    const same = await runHere(["init", third ?? "", "--model", model ?? "", "--input", input ?? "", ...named]);
    expect(same.code, same.stderr).toBe(0);
    expect(same.stderr).toContain("warning: another spec in this folder has the name cancer-logistic: ");
    const day = ["--param", "ds=2026-11-20"];
    expect((await runHere(["run", "job.yaml", ...day], { cwd })).code).toBe(0);
    expect(await runHere(["run", "other.yaml", ...day], { cwd })).toMatchObject({ code: 0 });
  });

  test("init binds texts by name, writes paths relative to the spec, and leaves out a password", async () => {
    await using folder = await newcomer("penguins_complete", "penguins-pipeline.onnx");
    const url = "postgres://scorer:hunter2@db.example/warehouse";
    const [where, ...what] = ["jobs.yaml", "--model", join(folder.path, "penguins-pipeline.onnx")];
    const { code, stdout, stderr } = await runHere(
      [
        "init",
        join(folder.path, where ?? ""),
        ...what,
        "--input",
        join(folder.path, "data/*.parquet"),
        "--postgres",
        url,
      ],
      { env: { DATABASE_URL: undefined } },
    );
    expect([code, stderr]).toEqual([0, ""]);
    const text = await readFile(join(folder.path, "jobs.yaml"), "utf8");
    expect([text, stdout].join()).not.toContain("hunter2");
    expect(text).toContain("url: ${DATABASE_URL}");
    expect(text).toContain("table: predictions.penguins_pipeline");
    expect(text).toContain("columns: [row_id, species, measured_on, tag]");
    expect(stdout).toContain("next     set DATABASE_URL, then infer-batch plan");
    expect(await readdir(folder.path)).toEqual([
      "data",
      "infer-batch.schema.json",
      "jobs.yaml",
      "penguins-pipeline.onnx",
    ]);
  });

  test("init pads lists of tokens and adds their mask, and the spec runs as it is", async () => {
    await using folder = await newcomer("sentences", "sentences-mean.onnx");
    const cwd = folder.path;
    const { code, stdout, stderr } = await runHere(
      ["init", "--model", "sentences-mean.onnx", "--input", "data/*.parquet"],
      { cwd },
    );
    expect([code, stderr]).toEqual([0, ""]);
    expect(stdout).toContain("input    attention_mask int64 [N,128] <- mask of input_ids\n");
    const text = await readFile(join(folder.path, "job.yaml"), "utf8");
    expect(text).toContain("    input_ids: {column: input_ids, pad: {to: 128}}\n");
    expect(text).toContain("    attention_mask: {mask_of: input_ids}\n");
    const run = await runHere(["run", "job.yaml", "--param", "ds=2026-11-20"], { cwd });
    expect(run.code).toBe(0);
    const golden = await goldenRows(fixtureNamed("sentences-mean"));
    expect(differences(await outputRows(join(folder.path, "out/dt=2026-11-20")), golden)).toEqual([]);
  });

  test("init takes paths relative to the working folder, and prints command lines that a shell accepts", async () => {
    await using folder = await newcomer("cancer", "cancer-logistic.onnx");
    const spec = join(folder.path, "my job.yaml");
    const [model, input] = ["cancer-logistic.onnx", "data/*.parquet"].map((name) => join(folder.path, name));
    const { stdout } = await runHere(["init", spec, "--model", model ?? "", "--input", input ?? "", "--output", "o"]);
    expect(stdout).toContain(`next     infer-batch plan '${spec}', then infer-batch run '${spec}'\n`);
    const text = await readFile(spec, "utf8");
    expect(text).toContain(`path: ${relative(folder.path, resolve("o"))}/dt=\${ds} #`);
    expect(text).toContain(`\`infer-batch run '${spec}'\``);
  });

  test.each([
    { wrong: ["--model", "nope.onnx"], said: /^error: reading --model: loading model .*nope\.onnx: there is no/ },
    { wrong: ["--input", "data/nope.parquet"], said: /^error: reading --input: there is no .*nope\.parquet\n/ },
    { wrong: ["--input", "data/${nope}.parquet"], said: /^error: reading --input: \$\{nope\} is neither/ },
    { wrong: ["--name", "A B"], said: /^error: reading --name: found "A B", expected/ },
    { wrong: ["--output", "S3://bucket"], said: /^error: reading --output: found "S3:/ },
    { wrong: ["--postgres", "other.yaml"], said: /^error: reading --postgres other.yaml: expected postgres:/ },
    { wrong: ["--postgres", "secret"], said: /^error: reading --postgres: found something else, expected postgres:/ },
    { wrong: ["--postgres", "--table", "a b"], said: /^error: reading --table: found "a b", expected/ },
  ])("init blames the option, not a line of the unwritten spec: $wrong", async ({ wrong, said }) => {
    const right = ["--model", "fixtures/models/cancer-logistic.onnx", "--input", "fixtures/data/cancer/*.parquet"];
    const given = right.filter((_, index) => right[index - (index % 2)] !== wrong[0]);
    const { code, stderr } = await runHere(["init", join(scratch.path, "job.yaml"), ...given, ...wrong]);
    expect([code, stderr]).toEqual([64, expect.stringMatching(said)]);
    expect(stderr).not.toMatch(/spec's folder|job\.yaml:/);
    expect(await readdir(scratch.path)).toEqual([]);
  });

  test("init writes nothing when the columns do not fit, and says what to do", async () => {
    await using folder = await newcomer("wine", "cancer-logistic.onnx");
    await writeFile(join(folder.path, "other.yaml"), "mine");
    const { code, stderr } = await runHere(["init", "--model", "cancer-logistic.onnx", "--input", "data/*.parquet"], {
      cwd: folder.path,
    });
    expect([code, stderr]).toEqual([
      64,
      expect.stringMatching(/input `input` is float32 \[N,30\], and 14 columns are numbers/),
    ]);
    expect(stderr).toContain("--columns");
    expect(await readdir(folder.path)).toEqual(["cancer-logistic.onnx", "data", "other.yaml"]);
  });
});

test("init without an input file ends with 64 and does not wait", async () => {
  await using folder = await newcomer("cancer", "cancer-logistic.onnx");
  const { code, stderr } = await runHere(["init", "--model", "cancer-logistic.onnx", "--input", "none/*.parquet"], {
    cwd: folder.path,
  });
  expect([code, stderr]).toEqual([
    64,
    expect.stringMatching(
      /^error: looking for input files: no file matches none\/\*\.parquet\n {2}hint: paths in options are relative/,
    ),
  ]);
});

const s3 = useS3();

s3.describe("init in S3", () => {
  test("init writes a spec that runs as it is, with model, shards and predictions in S3", async () => {
    await using folder = await newcomer("cancer", "cancer-logistic.onnx");
    const bucket = await s3.server().createBucket();
    await upload(bucket, folder.path, "");
    const at = (path: string): string => `s3://${bucket.name}/${path}`;
    const options = {
      cwd: scratch.path,
      env: { ...s3.server().env(), XDG_CACHE_HOME: join(scratch.path, "cache"), TMPDIR: scratch.path },
    };
    const places = ["--model", at("cancer-logistic.onnx"), "--input", at("data/*.parquet"), "--output", at("out")];
    const { code, stdout, stderr } = await runHere(["init", ...places], options);
    expect([code, stderr]).toEqual([0, ""]);
    expect(stdout).toContain("next     infer-batch plan job.yaml, then infer-batch run job.yaml\n");

    const run = await runHere(["run", "job.yaml", "--param", "ds=2026-11-20"], options);
    expect([run.code, run.stderr]).toEqual([0, expect.not.stringContaining("warn")]);
    const to = join(scratch.path, "predictions");
    await mirror(bucket, "out/dt=2026-11-20", to);
    expect(differences(await outputRows(to), await goldenRows(fixtureNamed("cancer-logistic")))).toEqual([]);
  });

  test("init says which S3 object is missing, and writes nothing", async () => {
    const bucket = await s3.server().createBucket();
    const [model, input] = [`s3://${bucket.name}/no.onnx`, `s3://${bucket.name}/*.parquet`];
    const { code, stderr } = await runHere(["init", "--model", model, "--input", input], {
      cwd: scratch.path,
      env: s3.server().env(),
    });
    expect([code, stderr]).toEqual([
      64,
      expect.stringContaining(`reading --model: loading model ${model}: there is no`),
    ]);
    expect(await readdir(scratch.path)).toEqual([]);
  });
});
