import { describe, expect, test } from "vitest";
import { scratch, scratchFolder, type SpecOverrides } from "../support/job.js";
import { lastJson, nightlyJob } from "../support/nights.js";
import { expectEnd } from "../support/cli.js";

const date = "2026-11-24";
/** What a night's message says of its checks: the lines between the first one and the hint. */
async function findingsOf(changed: SpecOverrides): Promise<{ failed: readonly string[]; stderr: string }> {
  await using folder = await scratchFolder();
  const nights = await nightlyJob(folder.path, {}, "penguins-lightgbm");
  for (const before of ["2026-11-21", "2026-11-22", "2026-11-23"]) {
    await expectEnd(nights.night("run", before), 0);
  }
  await nights.rewrite(changed);
  const held = await expectEnd(nights.night("run", date, "--json"), 67);
  const { verdict } = lastJson(held) as { verdict: { failed: string[] } };
  return { failed: verdict.failed, stderr: held.stderr };
}

describe("a run whose features changed is held, and the message begins with the column that changed", () => {
  test("a run whose feature changed from grams to kilograms is held, and names the column, the ratio and the effect on the predictions", async () => {
    const { failed, stderr } = await findingsOf({ input: { columns: { body_mass_g: "body_mass_g / 1000.0" } } });
    expect(failed[0]).toMatch(
      /^body_mass_g: median 4\.\d+, usually 4\d\d\d \(÷1000: thousands\?\); 100% of the rows have values that no earlier night had/,
    );
    expect(failed.slice(1).join("\n")).toMatch(/^probabilities_0: .*; body_mass_g moved, too$/m);
    const columns = failed.map((line) => /^(\w+): /.exec(line)?.[1]);
    expect(new Set(columns).size, "a line for each column").toBe(columns.length);
    expect(
      stderr
        .split("\n")
        .find((line) => line.startsWith("  "))
        ?.trim(),
    ).toBe(failed[0]);
  });

  test("a run with a column that became all NULL, read as NaN, is held and names the column", async () => {
    const { failed } = await findingsOf({ input: { columns: { body_mass_g: "NULL::DOUBLE" } } });
    expect(failed[0]).toMatch(/^body_mass_g: no row has a value; that never was$/);
  });
});

test("a feature that is ignored, and outputs with a large factor, hold nothing", async () => {
  const ignored = { body_mass_g: "ignore" };
  const outputs = ["label", "probabilities_0", "probabilities_1", "probabilities_2"];
  const nights = await nightlyJob(scratch.path, {}, "penguins-lightgbm");
  for (const before of ["2026-11-21", "2026-11-22", "2026-11-23"]) {
    await expectEnd(nights.night("run", before), 0);
  }
  const checks = { inputs: ignored, outputs: Object.fromEntries(outputs.map((name) => [name, { factor: 1000 }])) };
  await nights.rewrite({ checks, input: { columns: { body_mass_g: "body_mass_g / 1000.0" } } });
  await expectEnd(nights.night("run", date, "--json"), 0);
});
