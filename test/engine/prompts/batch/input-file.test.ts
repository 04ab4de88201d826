import { expect, test } from "vitest";
import { createInputFile, fileLimits, type InputFile, keyIn, lineOf } from "#src/engine/prompts/batch/input-file.js";

/** Fills files with requests of `size` bytes. */
function filesOf(count: number, size: number): InputFile[] {
  const line = Buffer.alloc(size);
  const files = [createInputFile()];
  for (let number = 0; number < count; number += 1) {
    if (files.at(-1)?.fits(line, fileLimits) === false) {
      files.push(createInputFile());
    }
    const worst = { prompt: 1, cached: 0, completion: 1 };
    files.at(-1)?.add({ key: String(number), line, worst });
  }
  return files;
}

test("a file has 50,000 requests at most", () => {
  expect(filesOf(100_001, 10).map(({ requests }) => requests.length)).toEqual([50_000, 50_000, 1]);
});

test("a file has 200 MB at most", () => {
  expect(filesOf(41, 10_000_000).map(({ bytes }) => bytes)).toEqual([200_000_000, 200_000_000, 10_000_000]);
});

test("a request that is larger than a file is sent alone, for the server to refuse", () => {
  expect(filesOf(2, 200_000_001).map(({ requests }) => requests.length)).toEqual([1, 1]);
});

test("a line of a file is the request as it is sent online, and names it by its key", () => {
  const body = Buffer.from('{"model":"m","messages":[]}');
  const key = "a".repeat(64);
  const line = lineOf(key, "chat", { body, sha256: key }).toString();
  expect(JSON.parse(line)).toEqual({
    custom_id: key,
    method: "POST",
    url: "/v1/chat/completions",
    body: { model: "m", messages: [] },
  });
  expect([keyIn(line), keyIn('{"custom_id":"mine"}')]).toEqual([key, undefined]);
});
