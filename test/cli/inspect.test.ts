import { chmod, copyFile, mkdir, readdir, readFile, symlink, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { describe, expect, test } from "vitest";
import { projectFolder, runCli, runHere } from "../support/cli.js";
import { scratch, scratchFolder } from "../support/job.js";
import { inspected } from "../support/inspected.js";
import { shownCli } from "../support/shown.js";
import { sparkTables } from "../support/lakes.js";
import { lastJson } from "../support/nights.js";

const here = "/nowhere";
const models = "fixtures/models";

interface GoldenTensor {
  readonly name: string;
  readonly type: string;
  readonly shape: readonly (string | number | null)[];
}

/** What Python's onnxruntime reports, in our words. */
function asInspected({ name, type, shape }: GoldenTensor): object {
  const element = /^tensor\((\w+)\)$/.exec(type)?.[1];
  const dtype = { float: "float32", double: "float64" }[element ?? ""] ?? element;
  return dtype === undefined
    ? { name, dtype: null, shape: null }
    : { name, dtype, shape: shape.map((dim) => (typeof dim === "number" ? dim : null)) };
}

/** Protobuf's StringStringEntryProto. */
function entry(key: string, value: string): Uint8Array {
  const text = WireType.LengthDelimited;
  return new BinaryWriter().tag(1, text).string(key).tag(2, text).string(value).finish();
}

describe("inspect on a model", () => {
  test.each(["cancer-logistic.onnx", "digits-lightgbm.onnx", "wine-zipmap.onnx", "external-data/model.onnx"])(
    "inspect shows %s as a table and as one line of JSON",
    async (model) => {
      expect(await shownCli(["inspect", `${models}/${model}`], here)).toMatchSnapshot();
      expect(await shownCli(["inspect", `${models}/${model}`, "--json"], here)).toMatchSnapshot();
    },
  );

  test("inspect shows the inputs and outputs that Python's onnxruntime reports, for each fixture", async () => {
    const golden = (await readdir(join(projectFolder, "fixtures/golden"))).filter((name) => name.endsWith(".json"));
    expect(golden.length).toBeGreaterThan(7);
    for (const file of golden) {
      const name = file.replace(".json", "");
      const path = name === "external-data" ? `${models}/external-data/model.onnx` : `${models}/${name}.onnx`;
      const expected = JSON.parse(await readFile(join(projectFolder, "fixtures/golden", file), "utf8")) as {
        inputs: GoldenTensor[];
        outputs: GoldenTensor[];
      };
      const { inputs, outputs } = await inspected(path);
      expect({ name, inputs, outputs }).toEqual({
        name,
        inputs: expected.inputs.map(asInspected),
        outputs: expected.outputs.map(asInspected),
      });
    }
  });

  test.each(["cancer-logistic.onnx", "external-data/model.onnx"])(
    "inspect shows the digest of %s that a run pins",
    async (model) => {
      const { sha256 } = await inspected(`${models}/${model}`);
      const spec = join(scratch.path, "job.yaml");
      const job = (digest: unknown): string =>
        JSON.stringify({
          version: 1,
          name: "pinned",
          input: { path: "none/*.parquet" },
          model: { path: join(projectFolder, models, model), sha256: digest },
          output: { parquet: { path: "out" } },
        });
      await writeFile(spec, job(sha256));
      expect((await runHere(["validate", spec])).code).toBe(0);
      await writeFile(spec, job("0".repeat(64)));
      expect((await runHere(["validate", spec])).code).toBe(64);
    },
  );

  test("inspect shows another digest when only a model's external data differ", async () => {
    const path = join(scratch.path, "model.onnx");
    const weights = join(scratch.path, "weights.bin");
    await copyFile(join(projectFolder, models, "external-data/model.onnx"), path);
    await copyFile(join(projectFolder, models, "external-data/weights.bin"), weights);
    const before = await inspected(path);
    const bytes = await readFile(weights);
    bytes.writeUInt8(bytes.readUInt8(0) ^ 1);
    await writeFile(weights, bytes);
    const after = await inspected(path);
    expect(before["sha256"]).toBe((await inspected(`${models}/external-data/model.onnx`))["sha256"]);
    expect({ ...after, sha256: "" }).toEqual({ ...before, sha256: "" });
    expect(after["sha256"]).not.toBe(before["sha256"]);
  });

  test("inspect shows the first lines of a model's long metadata in the table, and all in JSON", async () => {
    const path = join(scratch.path, "model.onnx");
    const more = new BinaryWriter()
      .tag(5, WireType.Varint)
      .int64(2n ** 53n + 1n)
      .tag(6, WireType.LengthDelimited)
      .string("Malignant or benign.\nTrained in 1995.")
      .tag(14, WireType.LengthDelimited)
      .bytes(entry("owner", "risk\x1b[31m team"))
      .tag(14, WireType.LengthDelimited)
      .bytes(entry("classes", "malignant,".repeat(20)));
    // Protobuf: what is appended is merged.
    const model = await readFile(join(projectFolder, models, "cancer-logistic.onnx"));
    await writeFile(path, Buffer.concat([model, more.finish()]));
    expect(await shownCli(["inspect", path], scratch.path)).toMatchSnapshot();
    expect(await inspected(path)).toMatchObject({
      model_version: "9007199254740993",
      doc_string: "Malignant or benign.\nTrained in 1995.",
      metadata_props: { owner: "risk\x1b[31m team", classes: "malignant,".repeat(20) },
    });
  });

  test("inspect recognizes a model by its content", async () => {
    const path = join(scratch.path, "model.parquet");
    await copyFile(join(projectFolder, models, "wine-forest.onnx"), path);
    expect(await inspected(path)).toMatchObject({ kind: "model", path, producer_name: "skl2onnx" });
  });

  test("inspect sends no telemetry of ONNX Runtime", async () => {
    const { code } = await runCli(["inspect", `${models}/wine-forest.onnx`], { env: { TMPDIR: scratch.path } });
    expect([code, await readdir(scratch.path)]).toEqual([0, []]);
  });
});

describe("inspect on a shard", () => {
  test.each(["digits/part-00000.parquet", "wine/part-00000.parquet"])(
    "inspect shows all of %s as a table and as one line of JSON",
    async (shard) => {
      expect(await shownCli(["inspect", `fixtures/data/${shard}`], here)).toMatchSnapshot();
      expect(await shownCli(["inspect", `fixtures/data/${shard}`, "--json"], here)).toMatchSnapshot();
    },
  );

  test("inspect recognizes a shard by its content, also through a link", async () => {
    const path = join(scratch.path, "shard.onnx");
    await symlink(join(projectFolder, "fixtures/data/wine/part-00003.parquet"), path);
    expect(await inspected(path)).toMatchObject({ kind: "shard", path, rows: 64, row_groups: 4 });
    await symlink(scratch.path, join(scratch.path, "[link]"));
    expect(await inspected(join(scratch.path, "[link]/shard.onnx"))).toMatchObject({ rows: 64 });
  });

  test("inspect recognizes a shard by its end when its start is damaged, as readers do", async () => {
    const path = join(scratch.path, "a");
    const bytes = await readFile(join(projectFolder, "fixtures/data/wine/part-00001.parquet"));
    bytes.write("XXXX");
    await writeFile(path, bytes);
    expect(await inspected(path)).toMatchObject({ kind: "shard", rows: 1 });
  });

  test("inspect shows control characters in column names as codes", async () => {
    const path = join(scratch.path, "a.parquet");
    const bytes = await readFile(join(projectFolder, "fixtures/data/wine/part-00001.parquet"));
    for (let at = bytes.indexOf("alcohol"); at >= 0; at = bytes.indexOf("alcohol", at + 1)) {
      bytes.write("\x1b[2J\nol", at);
    }
    await writeFile(path, bytes);
    const { stdout } = await runHere(["inspect", path]);
    expect(stdout).toContain("\n  \\x1b[2J\\x0aol  ");
    expect(stdout).not.toContain("\x1b");
  });
});

describe("inspect on other files", () => {
  test.each([
    { file: "no-such.onnx", found: "there is no such file or folder (ENOENT)" },
    { file: "README.md/no-such.onnx", found: "a folder above it is a file (ENOTDIR)" },
  ])("inspect refuses a missing file ($file)", async ({ file, found }) => {
    expect(await shownCli(["inspect", file], here)).toBe(
      `exit 64\n--- stderr\nerror: inspecting ${file}: ${found}\n  hint: name one .onnx, .parquet or .arrow file that this user can read; the path is relative to the working folder\n`,
    );
  });

  test("inspect refuses a shard in S3", async () => {
    expect(await shownCli(["inspect", "s3://lake/a.parquet"], here)).toMatchInlineSnapshot(`
      "exit 64
      --- stderr
      error: inspecting s3://lake/a.parquet: shards are inspected on this machine only
        hint: a URI names a model, as model.path does; fetch a shard first, such as with \`aws s3 cp\` or curl
      "
    `);
  });

  test("inspect refuses a folder", async () => {
    expect(await shownCli(["inspect", "fixtures"], here)).toMatchInlineSnapshot(`
      "exit 64
      --- stderr
      error: inspecting fixtures: it is a folder, and no Delta or Iceberg table
        hint: name one .onnx, .parquet or .arrow file, or the folder of a table
      "
    `);
  });

  test("inspect refuses a file that never ends", async () => {
    expect(await shownCli(["inspect", "/dev/zero"], here)).toMatchInlineSnapshot(`
      "exit 64
      --- stderr
      error: inspecting /dev/zero: it is not a plain file
        hint: name one .onnx, .parquet or .arrow file
      "
    `);
  });

  test.skipIf(process.getuid?.() === 0)("a file that this user may not read", async () => {
    const path = join(scratch.path, "model.onnx");
    await copyFile(join(projectFolder, models, "wine-forest.onnx"), path);
    await chmod(path, 0);
    expect(await shownCli(["inspect", path], scratch.path)).toBe(
      "exit 64\n--- stderr\nerror: inspecting <folder>/model.onnx: permission denied (EACCES)\n  hint: name one .onnx, .parquet or .arrow file that this user can read; the path is relative to the working folder\n",
    );
  });

  test.each([
    ["notes.txt", "This is no model.\n"],
    ["empty", ""],
    ["empty.parquet", ""],
    ["text.parquet", "a,b\n1,2\n"],
    ["features.arrow", "ARROW1\0\0\xff\xff"],
    ["model.pt", "PK\x03\x04\0\0"],
    ["model.pkl", "\x80\x04\x95\0"],
    ["model.h5", "\x89HDF\r\n"],
    ["model.onnx.gz", "\x1f\x8b\x08"],
    ["model.onnx", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"],
    ["no-graph.onnx", "\x08\x08\x12\x01x"],
    ["only-magic.parquet", "PAR1PAR1"],
    ["footer-missing", "PAR1\0\0\0\0\0\0\0\0"],
    ["footer-too-long", "PAR1\0\0\0\0\xff\xff\xff\x7fPAR1"],
    ["footer-garbage", "PAR1\xff\xfe\xfd\xfc\x04\0\0\0PAR1"],
    ["encrypted.parquet", "PARE\0\0\0\0\x04\0\0\0PARE"],
  ])("inspect refuses %s", async (name, content) => {
    const path = join(scratch.path, name);
    await writeFile(path, content, "latin1");
    const said = await shownCli(["inspect", path], scratch.path);
    expect(said).toMatch(/^exit 6[45]\n--- stderr\nerror: .*\n {2}hint: .*\n$/);
    expect(said).toMatchSnapshot();
    expect(await shownCli(["inspect", path, "--json"], scratch.path)).toBe(said);
  });

  test.each([
    ["models/wine-forest.onnx", 9000],
    ["data/wine/part-00000.parquet", 19_000],
  ])("inspect refuses %s, cut off", async (file, length) => {
    const path = join(scratch.path, "cut");
    await copyFile(join(projectFolder, "fixtures", file), path);
    await truncate(path, length);
    expect(await shownCli(["inspect", path], scratch.path)).toMatchSnapshot();
  });

  test("inspect refuses a model without its external weights", async () => {
    await using folder = await scratchFolder();
    await mkdir(join(folder.path, "m"));
    const path = join(folder.path, "m/model.onnx");
    await copyFile(join(projectFolder, models, "external-data/model.onnx"), path);
    expect(await shownCli(["inspect", path], folder.path)).toMatchInlineSnapshot(`
      "exit 64
      --- stderr
      error: loading model <folder>/m/model.onnx: its external data <folder>/m/weights.bin is not there
        hint: copy the model together with its external data files
      "
    `);
  });

  test("inspect refuses a model that ONNX Runtime refuses", async () => {
    const path = join(scratch.path, "model.onnx");
    const bytes = await readFile(join(projectFolder, models, "cancer-logistic.onnx"));
    await writeFile(path, bytes.toString("latin1").replaceAll("LinearClassifier", "LinearClassifieR"), "latin1");
    const said = await shownCli(["inspect", path], scratch.path);
    expect(said).toMatch(/^exit 64\n--- stderr\n(.*\n)*error: loading model <folder>\/model\.onnx: .*LinearClassifieR/);
  });
});

const inspect = async (...args: string[]): ReturnType<typeof runHere> => await runHere(["inspect", ...args]);

test("inspect shows version, rows and columns of a Delta table", async () => {
  const { code, stdout } = await inspect(join(sparkTables, "mapped"));
  expect(code).toBe(0);
  expect(stdout).toMatch(
    /^table {4}.*\nformat {3}Delta\nversion {2}9\nrows {5}107\nremoved {2}18 rows of the files below\nfiles {4}4 files/,
  );
  expect(stdout).toMatch(/\ncolumns:\n {2}id {2}int64\n {2}y {3}float32\n {2}dt {2}utf8\n {2}z {3}float64\n$/);
});

test("inspect --at shows an Iceberg table as it was", async () => {
  const found = await inspect(join(sparkTables, "ns/v2"), "--at", "old", "--json");
  expect(lastJson(found)).toMatchObject({ kind: "table", format: "iceberg", rows: 68, rows_removed: 12, files: 8 });
});

test("inspect refuses a folder that is no table", async () => {
  expect(await inspect(sparkTables)).toMatchObject({
    code: 64,
    stderr: expect.stringContaining("no Delta or Iceberg table") as string,
  });
});

test("inspect refuses a file of 3 GiB that is not a shard", async () => {
  await using folder = await scratchFolder();
  const path = join(folder.path, "sparse");
  await writeFile(path, "");
  await truncate(path, 3 * 1024 ** 3);
  expect(await shownCli(["inspect", path], folder.path)).toMatchInlineSnapshot(`
    "exit 64
    --- stderr
    error: inspecting <folder>/sparse: it is neither Parquet (no PAR1 at its start or end), nor Arrow, nor ONNX (read as protobuf: File size (3221225472) is greater than 2 GiB)
      hint: is this the right file, and was it copied whole?
    "
  `);
});
