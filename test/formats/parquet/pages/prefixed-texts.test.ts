import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { readFooter } from "#src/formats/parquet/footer.js";
import { findUnfitPrefixes } from "#src/formats/parquet/readable-parts.js";
import { mebibytes, memoryBudget } from "#src/base/memory-budget.js";
import { projectFolder } from "../../../support/cli.js";
import { emptyContract, ref } from "../../../support/batches.js";
import { scratch } from "../../../support/job.js";
import { torture } from "../../../support/torture.js";

const corpus = join(projectFolder, "fixtures/corpora/small/parquet-testing/data");
const plenty = memoryBudget(mebibytes(512));

async function faultOf(path: string, memory = plenty): Promise<string | undefined> {
  const footer = await readFooter({ path });
  const passthrough = footer.leaves.map(({ path: [name = ""] }) => ({ column: name, source: ref(name, "utf8") }));
  const projection = { ...emptyContract, passthrough };
  const file = { path, name: path };
  const slice = { file, rowStart: 0, rowEnd: footer.rows, projection, partitions: new Map() };
  return (await findUnfitPrefixes(footer, slice, memory))?.error.message;
}

test.each(["delta_encoding_required_column", "delta_encoding_optional_column"])(
  "texts of %s, which share their beginnings, fit each other",
  async (name) => {
    const path = join(corpus, `${name}.parquet`);
    const { rowGroups } = await readFooter({ path });
    expect(rowGroups[0]?.chunks.some(({ hasPrefixes }) => hasPrefixes)).toBe(true);
    expect(await faultOf(path)).toBeUndefined();
  },
);

test("a text that begins like more than the one before it has is found before any is made", async () => {
  const bytes = await readFile(join(corpus, "delta_encoding_required_column.parquet"));
  const path = join(scratch.path, "a.parquet");
  await writeFile(path, bytes);
  const chunk = (await readFooter({ path })).rowGroups[0]?.chunks.find(({ hasPrefixes }) => hasPrefixes);
  const found = new Set<string>();
  const [start, end] = [chunk?.start ?? 0, (chunk?.start ?? 0) + (chunk?.compressedBytes ?? 0)];
  for (let at = start; at < end; at += torture ? 1 : 9) {
    const damaged = Buffer.from(bytes);
    damaged[at] = 0xff - (damaged[at] ?? 0);
    await writeFile(path, damaged);
    found.add(((await faultOf(path)) ?? "fine").replaceAll(/\d+/g, "N").replace(/^.*: /, ""));
  }
  expect(found).toContain("a text begins like N bytes of the one before it, which has N");
  expect([...found].filter((text) => text.includes("undefined"))).toEqual([]);
});

test("a page whose texts together take more than a page may is refused", async () => {
  const path = join(corpus, "delta_encoding_required_column.parquet");
  expect(await faultOf(path, { ...plenty, pageBytes: 100 })).toMatch(
    /row group 0 \(rows .*\), column `.+`: a page of texts that share their beginnings has [\d.]+ KiB when it is unpacked, more than 0.1 KiB/,
  );
});
