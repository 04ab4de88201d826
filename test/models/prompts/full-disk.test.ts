import { closeSync, openSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { writeAllSync } from "#src/models/prompts/kept-answers.js";
import { scratchFolder } from "../../support/job.js";
import { mayMount, smallDisk } from "../../support/mounts.js";

test.skipIf(!mayMount)("bytes that fill the disk are an error, and not written in part", async () => {
  await using scratch = await scratchFolder();
  await using disk = await smallDisk(join(scratch.path, "disk"), "size=16k");
  const file = openSync(join(disk.path, "answers"), "w");
  try {
    expect(() => writeAllSync(file, new Uint8Array(100_000), 0)).toThrow("ENOSPC");
  } finally {
    closeSync(file);
  }
});
