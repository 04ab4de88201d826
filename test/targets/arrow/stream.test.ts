import { expect, test } from "vitest";
import { openArrowStream } from "#src/targets/stream.js";

test("a column of more bytes than 32-bit offsets reach is refused, not wrapped around", async () => {
  const stream = openArrowStream(() => Promise.resolve());
  const column = {
    kind: "bytes",
    offsets: Uint32Array.of(0, 2 ** 31),
    bytes: new Uint8Array(0),
    valid: undefined,
  } as const;
  const rows = { rowCount: 1, columns: [{ name: "text", type: "utf8", column }] } as const;
  await expect(stream.write(rows)).rejects.toMatchObject({
    code: "OUTPUT_REFUSED",
    message: "writing a record batch: a column of it holds 2147483648 bytes or elements",
  });
});
