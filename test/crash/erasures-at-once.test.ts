import { cp, mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { expect, test } from "vitest";
import { expectEnd, projectFolder, runCli, runHere } from "../support/cli.js";
import { scratch } from "../support/job.js";
import { nightAt, nightlyJob } from "../support/nights.js";
import { outputRows } from "../support/output.js";
import { torture } from "../support/torture.js";

const preload = pathToFileURL(join(projectFolder, "test/crash/erase-amid.mjs")).href;
const keys = [5, 441];

test("an erasure during which another one runs from start to end, at any moment, succeeds or says to run it again", {
  timeout: 900_000,
}, async () => {
  const original = join(scratch.path, "original");
  await mkdir(original);
  await nightlyJob(original, { commit_rows: 240 });
  for (const key of keys) {
    await writeFile(join(original, `keys-${key}.txt`), String(key));
  }
  await expectEnd(nightAt(original, "2026-01-01").run("run"), 0);
  const codes = new Set<number | null>();
  for (let at = 1; ; at += torture ? 1 : 110) {
    const folder = join(scratch.path, `at-${at}`);
    await cp(original, folder, { recursive: true });
    const [one = [], other = []] = keys.map((key) => [
      "erase",
      join(folder, "job.yaml"),
      "--keys",
      join(folder, `keys-${key}.txt`),
    ]);
    const trace = join(folder, "trace");
    const env = {
      AMID_ROOT: join(folder, "out"),
      AMID_AT: String(at),
      AMID_COMMAND: JSON.stringify([join(projectFolder, "bin/infer-batch.js"), ...other]),
      AMID_TRACE: trace,
    };
    const ended = await runCli(one, { node: [`--import=${preload}`], env });
    const inner = await readFile(trace, "utf8").catch(() => undefined);
    expect([0, 67], `${at}: ${ended.stderr}`).toContain(ended.code);
    expect(
      ended.code === 0 || /run the same (?:command|infer-batch erase) again/.test(ended.stdout),
      ended.stdout,
    ).toBe(true);
    if (inner === undefined) {
      break; // the erasure makes no more calls
    }
    expect(["0", "67"], String(at)).toContain(inner);
    codes.add(ended.code);
    for (const args of [one, other]) {
      await expectEnd(runHere(args), 0);
    }
    const ids = (await outputRows(join(folder, "out", "dt=2026-01-01"))).map(({ id }) => Number(id));
    expect([ids.length, keys.some((key) => ids.includes(key))]).toEqual([440, false]);
  }
  expect(codes).toEqual(new Set([0, 67]));
});
