import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { openBytes, openBytesHere } from "#src/formats/arrow/shards.js";
import { scratch } from "../../../support/job.js";

test.each([
  ["by Node's threads", openBytes],
  ["by this one", openBytesHere],
])("a file that has disappeared when it is read %s is reported, not waited for", async (_, open) => {
  const path = join(scratch.path, "a.arrow");
  await writeFile(path, "0123456789");
  await using bytes = await open({ path, name: path });

  expect(Buffer.from(await bytes.read(2, 6)).toString()).toBe("2345");
  const lent = new Uint8Array(8);
  expect((await bytes.read(2, 6, lent)).buffer).toBe(lent.buffer);
  await expect(async () => await bytes.read(8, 14)).rejects.toThrow("it ends at byte 10, where 4 more are due");
});
