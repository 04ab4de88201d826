import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { projectFolder } from "../support/cli.js";

const page = readFileSync(join(projectFolder, "docs/errors.md"), "utf8");
const sources = readdirSync(join(projectFolder, "src"), { recursive: true, encoding: "utf8" })
  .filter((name) => name.endsWith(".ts"))
  .map((name) => readFileSync(join(projectFolder, "src", name), "utf8").replaceAll(/\\?`/g, "`"))
  .join("\n");

/** The texts in the first column of each table, cut where a name or number stands. */
const fragments = [...page.matchAll(/^\| ([^|]*`[^|]*) \|/gm)].flatMap(([, cell = ""]) =>
  [...cell.matchAll(/`([^`]+)`/g)].flatMap(([, quoted = ""]) =>
    quoted.split(/\s*…\s*/).filter((text) => text.length > 3),
  ),
);

test("every error message that docs/errors.md quotes is in the program", () => {
  expect(fragments.length).toBeGreaterThan(50);
  expect(fragments.filter((text) => !sources.includes(text))).toEqual([]);
});
