import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { expectEnd, runCli, runHere } from "../support/cli.js";
import { scratch, writeSpec } from "../support/job.js";
import { lakeWriter, missing, skipped } from "../support/lake-writers.js";
import { randomOf } from "../support/random.js";
import { torture } from "../support/torture.js";
import { fixtureNamed } from "../support/world.js";

const fixture = fixtureNamed("diabetes-mlp");

interface Told {
  readonly faults: readonly string[];
  readonly looks: number;
  readonly nights: readonly string[];
}

describe("a Delta table that others write to, too", () => {
  test.skipIf(missing !== undefined)(
    `has all rows of each night once or none, whenever workers are killed${skipped}`,
    { timeout: 900_000 },
    async () => {
      const table = join(scratch.path, "table");
      const spec = await writeSpec(scratch.path, fixture, {
        name: "scores",
        params: { ds: "n0" },
        commit_rows: 60,
        output: { columns: ["id"], parquet: undefined, delta: { path: table, partition: { ds: "${ds}" } } },
      });
      await using beside = lakeWriter("beside.py", [table, "442"]);
      const random = randomOf(20);
      const nights = torture ? 60 : 2;
      let kills = 0;
      for (let night = 0; night < nights; night += 1) {
        const args = ["run", spec, "--param", `ds=n${night}`];
        // Two workers, of which one is killed at any moment, up to three times; then the same command ends the run.
        for (let life = 0; life < 3; life += 1) {
          const other = life === 1 ? runCli([...args, "--worker", "1/2"]) : undefined;
          const killed = await runCli(life === 1 ? [...args, "--worker", "0/2"] : args, {
            onStart: (child) => void sleep(300 + random() * 900).then(() => child.kill("SIGKILL")),
          });
          kills += killed.signal === "SIGKILL" ? 1 : 0;
          await other;
        }
        await expectEnd(runHere(args), 0);
      }
      const told = JSON.parse(await beside.ask("")) as Told;
      expect(told).toMatchObject({
        faults: [],
        nights: Array.from({ length: nights }, (_, night) => `n${night}`).toSorted(),
      });
      expect(told.looks).toBeGreaterThan(nights);
      expect(kills).toBeGreaterThan(0);
      expect((await readdir(table)).filter((name) => name.includes("staged"))).toEqual([]);
    },
  );
});
