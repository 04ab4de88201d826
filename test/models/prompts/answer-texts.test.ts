import { createHash } from "node:crypto";
import { expect, test } from "vitest";
import { createAnswerTexts } from "#src/models/prompts/kept-answers.js";
import { randomOf } from "../../support/random.js";
import { torture } from "../../support/torture.js";

const requestOf = (number: number): string => createHash("sha256").update(String(number)).digest("hex");

test("texts are found in the file, and later ones replace earlier ones", () => {
  const random = randomOf(3);
  using texts = createAnswerTexts();
  const due = new Map<string, string>();
  // The table grows; a third of the requests comes again.
  for (let step = 0; step < 9000; step += 1) {
    const request = requestOf(Math.floor(random() * 6000));
    const text = `é ${step} ${"x".repeat(Math.floor(random() * 100))}`;
    texts.set(request, text);
    due.set(request, text);
  }
  expect(due.size).toBeGreaterThan(4000);
  for (let number = 0; number < 6000; number += 1) {
    const request = requestOf(number);
    expect(texts.get(request), String(number)).toBe(due.get(request));
  }
});

test.runIf(torture)("a million answers of 600 bytes take less than 64 MiB of memory", () => {
  using texts = createAnswerTexts();
  const text = "x".repeat(600);
  for (let number = 0; number < 50_000; number += 1) {
    texts.set(requestOf(number), text);
  }
  globalThis.gc?.();
  const before = process.memoryUsage.rss();
  for (let number = 50_000; number < 1_000_000; number += 1) {
    texts.set(requestOf(number), text);
  }
  const grown = process.memoryUsage.rss() - before;
  for (let number = 0; number < 1_000_000; number += 9973) {
    expect(texts.get(requestOf(number))).toBe(text);
  }
  console.log(`RSS grew by ${(grown / 1024 ** 2).toFixed(1)} MiB`);
  expect(grown).toBeLessThan(64 * 1024 ** 2);
});
