import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { loadTokenizer } from "#src/models/tokens.js";
import { projectFolder } from "../../support/cli.js";
import { scratch } from "../../support/job.js";
import { pythonToolsOfTorture } from "../../support/python-tools.js";

interface ManyTexts {
  readonly texts: readonly string[];
  readonly ids: Readonly<Record<string, readonly (readonly number[])[]>>;
}

const folder = join(projectFolder, "fixtures/tokenizers");
const readJson = async (name: string): Promise<unknown> => JSON.parse(await readFile(join(folder, name), "utf8"));
const sha256Of = async (path: string): Promise<string> =>
  createHash("sha256")
    .update(await readFile(path))
    .digest("hex");

const names = ["bert", "roberta", "unigram"];
const python = pythonToolsOfTorture("many-texts", ["tokenizers==0.23.3", "django==5.2.8", "emoji==2.15.0"]);

describe("a tokenizer", () => {
  test.each(names)("%s gives the ids that Python's tokenizers gives", async (name) => {
    const path = join(folder, `${name}.json`);
    const texts = (await readJson("texts.json")) as string[];
    const expected = ((await readJson("ids.json")) as Record<string, number[][]>)[name];
    const encode = await loadTokenizer({ path, uri: path, sha256: await sha256Of(path) });

    const encodings = await encode(texts, { width: 64, cut: "right", withTypes: false });

    expect(texts.length).toBeGreaterThan(300);
    expect(encodings.map(({ ids }) => ids)).toEqual(expected);
  });

  test.skipIf(python.missing !== undefined)(
    `gives the ids that Python's tokenizers gives for 10,000 texts in many languages${python.skipped}`,
    async () => {
      const out = join(scratch.path, "texts.json");
      const script = fileURLToPath(new URL("../../support/many_texts.py", import.meta.url));
      const made = spawnSync(join(python.bin, "python"), [script, folder, out, ...names], { encoding: "utf8" });
      expect(made.status, made.stderr).toBe(0);
      const { texts, ids } = JSON.parse(await readFile(out, "utf8")) as ManyTexts;
      expect(texts).toHaveLength(10_000);
      for (const name of names) {
        const path = join(folder, `${name}.json`);
        const encode = await loadTokenizer({ path, uri: path, sha256: await sha256Of(path) });

        const encodings = await encode(texts, { width: 64, cut: "right", withTypes: false });

        const wrong = encodings.filter((one, index) => one.ids.join() !== ids[name]?.[index]?.join());
        expect(wrong, name).toEqual([]);
      }
    },
  );

  test("a tokenizer cuts texts on the left if its file says so", async () => {
    const path = join(folder, "bert.json");
    const encode = await loadTokenizer({ path, uri: path, sha256: await sha256Of(path) });
    const text = "one two three four five six seven";
    const withTypes = false;
    const [whole] = await encode([text], { width: 64, cut: "right", withTypes });
    const [right] = await encode([text], { width: 6, cut: "right", withTypes });
    const [left] = await encode([text], { width: 6, cut: "left", withTypes });
    expect(right?.ids).toEqual([...(whole?.ids.slice(0, 5) ?? []), whole?.ids.at(-1)]);
    expect(left?.ids).toEqual([whole?.ids[0], ...(whole?.ids.slice(-5) ?? [])]);
  });

  test("texts that are encoded at the same time are cut to lengths of their own", async () => {
    const path = join(folder, "bert.json");
    const encode = await loadTokenizer({ path, uri: path, sha256: await sha256Of(path) });
    const lengths = await Promise.all(
      [9, 5, 7].map(async (width) => {
        const texts = Array<string>(100).fill("one two three four five six seven eight");
        const encodings = await encode(texts, { width, cut: "right", withTypes: false });
        return encodings[0]?.ids.length;
      }),
    );
    expect(lengths).toEqual([9, 5, 7]);
  });

  test("a tokenizer is refused if its file is not the pinned one", async () => {
    const path = join(folder, "bert.json");
    const sha256 = await sha256Of(join(folder, "roberta.json"));
    await expect(loadTokenizer({ path, uri: path, sha256 })).rejects.toThrow(
      "was written to while it was being loaded",
    );
  });
});
