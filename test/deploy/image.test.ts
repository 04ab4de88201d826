import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { chmod, copyFile, readFile, writeFile } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { expect, test } from "vitest";
import { projectFolder } from "../support/cli.js";
import { deployFolder } from "../support/deploy.js";
import { scratch } from "../support/job.js";
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
  const pages = ["docs", "deploy", "examples", "jobs", "bench", "Dockerfile", "CONTRIBUTING.md"]; // and what they link to
  const elsewhere = new Set([...pages, "vendor"]); // the image has onnxruntime-node itself
  const needed = files.filter((path) => !elsewhere.has(path.split("/")[0] ?? "")); // of what npm publishes
  expect(copied).toEqual(expect.arrayContaining(needed));
});

test("what fetches CUDA files is what onnxruntime-node's install script takes as an order", async () => {
  const files = ["Dockerfile", "docs/gpu.md"];
  const texts = await Promise.all(files.map((file) => readFile(join(projectFolder, file), "utf8")));
  const values = texts.map((text) => /ONNXRUNTIME_NODE_INSTALL=(\S+) node /.exec(text)?.[1]);
  const utils = join(projectFolder, "node_modules/onnxruntime-node/script/install-utils.js");
  const flagOf = (value = ""): string =>
    spawnSync(process.execPath, ["--print", `require(${JSON.stringify(utils)}).parseInstallFlag()`], {
      encoding: "utf8",
      env: { ONNXRUNTIME_NODE_INSTALL: value },
    }).stdout;
  expect(values.map(flagOf)).toEqual(["true\n", "true\n"]);
  expect(flagOf("cuda12"), "as if nothing was said").toBe("undefined\n");
});

test("the image needs no init: it starts the command that it is given", async () => {
  const text = await readFile(dockerfile, "utf8");
  expect(text.match(/^ENTRYPOINT .*$/gm)).toEqual(["ENTRYPOINT []", "ENTRYPOINT []"]); // not the base's
  expect(text).not.toMatch(/apt-get|tini/); // packages of a distribution, which no lock pins
});

test("each image has the locale of text models", async () => {
  const text = await readFile(dockerfile, "utf8");
  const images = text.split(/^FROM /m).filter((stage) => stage.includes("ENTRYPOINT"));
  expect(images).toHaveLength(2);
  for (const image of images) {
    expect(image).toContain("ln -s C.utf8 /usr/lib/locale/en_US.utf8");
  }
});

test("an image without a native package of its platform is not built", async () => {
  const text = await readFile(dockerfile, "utf8");
  const { dependencies } = JSON.parse(await readFile(join(projectFolder, "package.json"), "utf8")) as {
    dependencies: Record<string, string>;
  };
  const [, script = ""] = /npm ci --omit=dev .*\n.* node -e '(.*)'/.exec(text) ?? [];
  const loaded = [...script.matchAll(/require\("(.*?)"\)/g)].map(([, name]) => name);
  expect(loaded).toEqual(Object.keys(dependencies));
});

test("scripts/pin-bases.sh pins each base by the digest that its registry tells, and again later", async () => {
  const copy = join(scratch.path, "Dockerfile");
  await copyFile(dockerfile, copy);
  const docker = join(scratch.path, "docker");
  const pin = async (hex: string): Promise<string[]> => {
    // As `docker buildx imagetools inspect` tells of an image of several platforms.
    const told = `Name:      $4\nMediaType: application/vnd.oci.image.index.v1+json\nDigest:    sha256:${hex}\n\nManifests:`;
    await writeFile(docker, `#!/bin/sh\n[ "$1 $2 $3" = "buildx imagetools inspect" ] && printf '%b' "${told}"\n`);
    await chmod(docker, 0o755);
    const PATH = [scratch.path, process.env["PATH"]].join(delimiter);
    const { status, stderr } = spawnSync("sh", [join(projectFolder, "scripts/pin-bases.sh"), copy], {
      encoding: "utf8",
      env: { PATH },
    });
    expect([status, stderr]).toEqual([0, ""]);
    return (await readFile(copy, "utf8")).match(/^ARG .*$/gm) ?? [];
  };
  const tags = ((await readFile(dockerfile, "utf8")).match(/^ARG .*$/gm) ?? []).map((line) => line.replace(/@.*/, ""));
  expect(tags).toHaveLength(2);
  expect(await pin("0123")).toEqual(tags.map((line) => `${line}@sha256:0123`));
  expect(await pin("4567")).toEqual(tags.map((line) => `${line}@sha256:4567`));
  const changed = (await readFile(copy, "utf8")).replaceAll("@sha256:4567", "");
  expect(changed).toBe((await readFile(dockerfile, "utf8")).replaceAll(/@sha256:\w+/g, ""));
});
