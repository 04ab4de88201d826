import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { expect, test } from "vitest";
import { projectFolder } from "../support/cli.js";

const imports = /^import \{([^}]*)\} from "(\.[^"]*\/dist\/[^"]+)";/gm;
const modules = ["bench", "scripts"].flatMap((folder) =>
  readdirSync(join(projectFolder, folder), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".mjs") && !name.includes("data/"))
    .map((name) => join(folder, name)),
);
const used = modules.flatMap((file) => {
  const text = readFileSync(resolve(projectFolder, file), "utf8");
  return Array.from(text.matchAll(imports), ([, names = "", from = ""]) => ({ file, names, from }));
});

test.each(used)("$file finds $names in $from", async ({ file, names, from }) => {
  const path = resolve(projectFolder, dirname(file), from);
  const module = (await import(pathToFileURL(path).href)) as object;
  const wanted = names.split(",").map((name) => name.trim().split(" as ")[0] ?? "");
  expect(Object.keys(module)).toEqual(expect.arrayContaining(wanted));
});
