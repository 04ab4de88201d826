import { expect, test, vi } from "vitest";
import { safeOutput, writeNotice } from "#src/cli/io.js";

/** What is written to a stream for a message with a control character. */
function written(isTTY: boolean): string {
  let text = "";
  const stream = { isTTY, fd: 2, write: (chunk: string) => (text += chunk) } as unknown as NodeJS.WriteStream & {
    fd: number;
  };
  writeNotice(safeOutput(stream), "error: reading a\u001b[31mb\n  hint: error: is no start of a line\n");
  return text;
}

const plain = "error: reading a\\x1b[31mb\n  hint: error: is no start of a line\n";

test("on a terminal `error:` and `hint:` have colours, and nothing that a message quotes does", () => {
  vi.stubEnv("NO_COLOR", "");
  const text = written(true);
  expect(text.replaceAll(/\p{Cc}\[\d+m/gu, "")).toBe(plain);
  expect(text.startsWith("\u001b[")).toBe(true);
  expect(text.match(/\p{Cc}\[36m/gu)).toHaveLength(1);
  expect(written(false)).toBe(plain);
  vi.stubEnv("NO_COLOR", "1");
  expect(written(true)).toBe(plain);
  vi.unstubAllEnvs();
});
