import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import type { Plan } from "#src/plan/plan.js";
import { sealedText } from "#src/sink/parquet/common/stored-plan.js";
import { scratchFolder, writeSpec } from "../support/job.js";
import { leaveUnfinished, scoreHere } from "../support/score.js";
import { fixtureNamed } from "../support/world.js";

test("a run that an older version planned is profiled as that version did, also if a newer version goes on with it", async () => {
  await using scratch = await scratchFolder();
  const spec = await writeSpec(scratch.path, fixtureNamed("diabetes-mlp"), { commit_rows: 200 });
  const out = join(scratch.path, "out");
  await leaveUnfinished(spec, out, () => false);
  const plan = await planOf(out);
  expect(await profilesWithShares(out)).toBe(0);
  await scoreHere(spec);
  expect(await profilesWithShares(out)).toBe(3);

  await leaveUnfinished(spec, out, () => false);
  const { sha256: _seal, profiles: _profiles, ...older } = plan.content;
  await writeFile(plan.path, sealedText(older));
  expect(await scoreHere(spec)).toMatchObject({ status: "complete" });
  expect(await profilesWithShares(out)).toBe(0);
});

async function planOf(out: string): Promise<{ path: string; content: Plan & { readonly sha256?: string } }> {
  const folder = join(out, "_infer-batch");
  const path = join(
    folder,
    (await readdir(folder, { recursive: true })).find((name) => name.endsWith("plan.json")) ?? "",
  );
  return { path, content: JSON.parse(await readFile(path, "utf8")) as Plan };
}

/** Counts the parts whose profile says how many bytes the outputs share. */
async function profilesWithShares(out: string): Promise<number> {
  const parts = (await readdir(out)).filter((name) => name.startsWith("part-"));
  const texts = await Promise.all(parts.map((name) => readFile(join(out, name), "latin1")));
  return texts.filter((text) => text.includes('"output_bytes":')).length;
}
