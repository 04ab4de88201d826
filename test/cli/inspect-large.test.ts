import { truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { runCli } from "../support/cli.js";
import { scratch, scratchFolder } from "../support/job.js";
import { shownCli } from "../support/shown.js";

test("inspect refuses a file of 3 GiB that is not a shard", async () => {
  await using folder = await scratchFolder();
  const path = join(folder.path, "sparse");
  await writeFile(path, "");
  await truncate(path, 3 * 1024 ** 3);
  expect(await shownCli(["inspect", path], folder.path)).toMatchInlineSnapshot(`
    "exit 64
    --- stderr
    error: inspecting <folder>/sparse: it is neither Parquet (no PAR1 at its start or end), nor Arrow, nor ONNX (read as protobuf: illegal tag: field no 0 wire type 0)
      hint: is this the right file, and was it copied whole?
    "
  `);
});

test.each([
  { name: "text", head: "id,amount\n1,2.5\n" },
  { name: "a model's first fields, and no graph behind them", head: "\b\b\u0012\u0002py\n" },
  { name: "a model's first field, over and over", head: "\b\b".repeat(1 << 20) },
])("inspect refuses a file of 1.5 GiB that is not a model after a few of its bytes: $name", async ({ head }) => {
  const path = join(scratch.path, "large");
  await writeFile(path, head);
  await truncate(path, 1.5 * 1024 ** 3);
  const telling = 'process.on("exit", () => console.error("peak", process.resourceUsage().maxRSS));';
  const node = [`--import=data:text/javascript,${encodeURIComponent(telling)}`];

  const { code, stderr } = await runCli(["inspect", path], { node });

  expect([code, stderr]).toEqual([64, expect.stringMatching(/^error: inspecting \S+: it is neither Parquet/)]);
  const [, peakKiB] = /^peak (\d+)$/m.exec(stderr) ?? [];
  expect(Number(peakKiB)).toBeLessThan(500 * 1024);
});
