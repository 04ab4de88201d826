import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { projectFolder } from "../support/cli.js";

const { status, stdout } = spawnSync("git", ["ls-files", "*.md"], { cwd: projectFolder, encoding: "utf8" });
const pages = stdout.split("\n").filter((path) => /^(?:(?:README|CHANGELOG|CONTRIBUTING)\.md|docs\/.*)$/.test(path));
const written = pages.filter((path) => !/^docs\/(?:decisions\/.*|architecture\.md|cli\.md|job-spec\.md)$/.test(path));
const read = (path: string): string => readFileSync(join(projectFolder, path), "utf8");

/** As `wc -w` counts them. */
const words = (text: string): number => text.split(/\s+/).filter((word) => word !== "").length;

/** What stands between blank lines and is no code and no table; items of a list are paragraphs of their own. */
const paragraphs = (text: string): string[] =>
  text.replaceAll(/^ *```[^]*?^ *```$/gm, "").split(/\n\s*\n|\n(?=\s*(?:[-|]|\d+\. ))/);

/** Whoever adds a page takes words out elsewhere. */
const ceilings = { all: 60_000, written: 33_000, readme: 900, page: 1_700, paragraph: 80 };

test.skipIf(status !== 0)("the documentation has no more words than a person reads", () => {
  const sum = (paths: readonly string[]): number => paths.reduce((total, path) => total + words(read(path)), 0);
  expect(pages.length).toBeGreaterThan(40);
  expect(sum(pages)).toBeLessThanOrEqual(ceilings.all);
  expect(sum(written)).toBeLessThanOrEqual(ceilings.written);
  expect(words(read("README.md"))).toBeLessThanOrEqual(ceilings.readme);
});

test.skipIf(status !== 0).each(written)("%s is short, and so are its paragraphs", (page) => {
  const text = read(page);
  expect(words(text)).toBeLessThanOrEqual(ceilings.page);
  const long = paragraphs(text).filter((one) => !/^\s*\|/.test(one) && words(one) > ceilings.paragraph);
  expect(long).toEqual([]);
});
