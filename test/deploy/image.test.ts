import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { projectFolder } from "../support/cli.js";
import { deployFolder } from "../support/deploy.js";
import { validators } from "../support/validators.js";

const dockerfile = join(projectFolder, "Dockerfile");

test.skipIf(validators.missing !== undefined)(`hadolint finds nothing in the Dockerfiles${validators.skipped}`, () => {
  const files = [dockerfile, join(deployFolder, "aws-batch/Dockerfile")];
  const { stdout, stderr } = spawnSync(join(validators.bin, "hadolint"), ["--no-color", ...files], {
    encoding: "utf8",
  });
  expect(`${stdout}${stderr}`).toBe("");
});

test("what the Dockerfile copies is there, and is sent to the builder", async () => {
  const text = await readFile(dockerfile, "utf8");
  const sent = (await readFile(join(projectFolder, ".dockerignore"), "utf8"))
    .split("\n")
    .filter((line) => line.startsWith("!"))
    .map((line) => line.slice(1));
  const copied = [...text.matchAll(/^COPY (?!--from)(.*) \S+$/gm)].flatMap(([, paths]) => (paths ?? "").split(" "));
  expect(new Set(copied)).toEqual(new Set(sent));
  expect(copied.filter((path) => !existsSync(join(projectFolder, path)))).toEqual([]);
});

test("its build and its program are those of package.json", async () => {
  const text = await readFile(dockerfile, "utf8");
  const { scripts, bin, files } = JSON.parse(await readFile(join(projectFolder, "package.json"), "utf8")) as {
    scripts: Record<string, string>;
    bin: Record<string, string>;
    files: string[];
  };
  for (const [, name = ""] of text.matchAll(/npm run (\S+)/g)) {
    expect(scripts).toHaveProperty(name);
  }
  expect(text).toContain(`ln -s /app/${bin["infer-batch"]} /usr/local/bin/infer-batch`);
  const copied = [...text.matchAll(/^COPY (.*)$/gm)].flatMap(([, paths]) => (paths ?? "").split(" "));
  expect(copied).toEqual(expect.arrayContaining(files)); // what npm would publish
});
