import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { shiftedBy } from "../support/challenger.js";
import { scratch } from "../support/job.js";
import { fewRows, lastJson, nightlyJob } from "../support/nights.js";
import { expectEnd } from "../support/cli.js";

test("a run that goes back to an older model warns of it once; status, the page and the message of a held run say so", async () => {
  const overrides = { model: { path: "model.onnx" }, report: { html: "report.html" } };
  const nights = await nightlyJob(scratch.path, overrides, "cancer-logistic");
  const text =
    /the model is not that of the last run: \S*model\.onnx has sha256 ([0-9a-f]{12})…, that run \(2026-11-2\d\) had ([0-9a-f]{12})…; it was last used on (2026-11-2\d)/;
  const warned: unknown[] = [];
  for (const [date, shift, first] of [
    ["2026-11-20", 0.01, 0],
    ["2026-11-21", 0.02, 1],
    ["2026-11-22", 0.01, 2],
    ["2026-11-23", 0.01, 3],
  ] as const) {
    await nights.rewrite({ ...overrides, input: { where: `id >= 9007199254740993 + ${first}` } }); // a repeat of a night would be held
    await writeFile(join(scratch.path, "model.onnx"), await shiftedBy(shift));
    const { stderr } = await expectEnd(nights.night("run", date), 0);
    warned.push(text.exec(stderr)?.[3]);
    expect(stderr.includes("WARN: the model is not")).toBe(date === "2026-11-22");
  }
  expect(warned).toEqual([undefined, undefined, "2026-11-20", undefined]);

  const [line = ""] = text.exec((await nights.night("status", "2026-11-22")).stdout) ?? [];
  expect((await nights.night("status", "2026-11-22")).stdout).toContain(`\n  note: ${line}\n`);
  expect(lastJson(await nights.night("status", "2026-11-22", "--json"))).toMatchObject({
    verdict: { outcome: "publish", notes: expect.arrayContaining([line]) },
  });
  expect((await nights.night("status", "2026-11-23")).stdout).not.toMatch(text);

  await writeFile(join(scratch.path, "model.onnx"), await shiftedBy(0.02));
  await nights.rewrite(fewRows);
  await expectEnd(nights.night("run", "2026-11-24"), 67, new RegExp(`\\n {2}${text.source}\\n`));
  expect((await nights.night("run", "2026-11-24")).stderr).not.toContain("WARN: the model is not");
  expect(await readFile(join(scratch.path, "report.html"), "utf8")).toMatch(
    /<p>The model is not that of the last run: /,
  );
});
