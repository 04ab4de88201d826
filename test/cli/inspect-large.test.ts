import { truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { scratchFolder } from "../support/job.js";
import { shownCli } from "../support/shown.js";

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
