import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { stringify } from "yaml";
import { projectFolder } from "../support/cli.js";
import { differences } from "../support/golden.js";
import { scratch } from "../support/job.js";
import { outputRows } from "../support/output.js";
import { readRows } from "../support/parquet.js";
import { pythonToolsOfTorture } from "../support/python-tools.js";
import { scoreHere } from "../support/score.js";

const page = readFileSync(join(projectFolder, "docs/converters.md"), "utf8");
const libraries = ["scikit-learn", "LightGBM", "XGBoost", "CatBoost"];
const notRun = ["PyTorch"];

const python = pythonToolsOfTorture("converters", [
  "catboost==1.2.10",
  "lightgbm==4.7.0",
  "onnxmltools==1.16.0",
  "pandas==3.1.1",
  "pyarrow==26.0.1",
  "scikit-learn==1.9.1",
  "skl2onnx==1.20.0",
  "xgboost-cpu==3.2.0",
]);

/** The lines of a library's section. */
function sectionOf(library: string): { readonly lines: string; readonly model: string } {
  const [, section = ""] = page.split(new RegExp(`^## ${library}$`, "m"));
  const [own = ""] = section.split(/^## /m);
  const block = (language: string): string =>
    new RegExp(`^\`\`\`${language}\\n([^]*?)^\`\`\``, "m").exec(own)?.[1] ?? "";
  return { lines: block("python"), model: block("yaml") };
}

test("each library that the converters' page names has its lines and a spec there, and its test unless the page says that it has none", () => {
  const table = [...page.matchAll(/^\| \[(.+?)\]/gm)].map(([, library]) => library);
  expect(table).toEqual([...libraries, ...notRun]);
  for (const library of table) {
    const { lines, model } = sectionOf(library ?? "");
    expect(lines, library).toContain('"model.onnx"');
    expect(model, library).toContain("path: model.onnx");
  }
  expect(page).toContain("the only ones on this page that the tests do not run");
});

test.skipIf(python.missing !== undefined).each(libraries)(
  `the page's lines for %s make a model with the library's own predictions${python.skipped}`,
  async (library) => {
    const { lines, model } = sectionOf(library);
    const script = fileURLToPath(new URL("../support/converted_model.py", import.meta.url));
    const made = spawnSync(join(python.bin, "python"), [script, library, lines, scratch.path], { encoding: "utf8" });
    expect(made.status, made.stderr).toBe(0);
    const spec = join(scratch.path, "job.yaml");
    const output = { columns: ["id"], parquet: { path: "out" } };
    await writeFile(
      spec,
      `${stringify({ version: 1, name: "converted", input: { path: "features.parquet" }, output })}${model}`,
    );

    await scoreHere(spec);

    const scored = await outputRows(join(scratch.path, "out"));
    const expected = await readRows(join(scratch.path, "expected.parquet"));
    expect(
      differences(
        scored.map(({ id, score }) => ({ id, score })),
        expected,
      ),
    ).toEqual([]);
  },
);
