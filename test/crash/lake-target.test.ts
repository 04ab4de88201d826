import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { expectEnd, runCli, runHere } from "../support/cli.js";
import { icebergMissing, startPyiceberg, useDiskCatalog } from "../support/iceberg.js";
import { scratch, writeSpec } from "../support/job.js";
import { lakeWriter, missing, skipped } from "../support/lake-writers.js";
import { randomOf } from "../support/random.js";
import { torture } from "../support/torture.js";
import { fixtureNamed } from "../support/world.js";

const fixture = fixtureNamed("diabetes-mlp");
const nights = torture ? 60 : 2;

/** Publishes nights into a table: of each, workers are killed at any moment, and then the same command ends the run. */
async function publishNights(output: object, env: Readonly<Record<string, string>> = {}): Promise<void> {
  const spec = await writeSpec(scratch.path, fixture, {
    name: "scores",
    params: { ds: "n0" },
    commit_rows: 60,
    output: { columns: ["id"], parquet: undefined, ...output },
  });
  const random = randomOf(20);
  let kills = 0;
  for (let night = 0; night < nights; night += 1) {
    const args = ["run", spec, "--param", `ds=n${night}`];
    // Two workers, of which one is killed, up to three times.
    for (let life = 0; life < 3; life += 1) {
      const other = life === 1 ? runCli([...args, "--worker", "1/2"], { env }) : undefined;
      const killed = await runCli(life === 1 ? [...args, "--worker", "0/2"] : args, {
        env,
        onStart: (child) => void sleep(300 + random() * 900).then(() => child.kill("SIGKILL")),
      });
      kills += killed.signal === "SIGKILL" ? 1 : 0;
      await other;
    }
    await expectEnd(runHere(args, { env }), 0);
  }
  expect(kills).toBeGreaterThan(0);
}

interface Told {
  readonly faults: readonly string[];
  readonly looks: number;
  readonly nights: readonly string[];
}

describe("a table that others write to, too, has all rows of each night once or none, whenever workers are killed:", () => {
  test.skipIf(missing !== undefined)(`Delta${skipped}`, { timeout: 900_000 }, async () => {
    const table = join(scratch.path, "table");
    await using beside = lakeWriter("beside.py", [table, "442"]);
    await publishNights({ delta: { path: table, partition: { ds: "${ds}" } } });
    const told = JSON.parse(await beside.ask("")) as Told;
    expect(told).toMatchObject({
      faults: [],
      nights: Array.from({ length: nights }, (_, night) => `n${night}`).toSorted(),
    });
    expect(told.looks).toBeGreaterThan(nights);
    expect((await readdir(table)).filter((name) => name.includes("staged"))).toEqual([]);
  });

  describe.skipIf(icebergMissing !== undefined)("", () => {
    const catalog = useDiskCatalog();

    test("Iceberg", { timeout: 900_000 }, async () => {
      const { url, env, pyiceberg } = catalog();
      const table = "db.nights";
      const column = (name: string, type: string): readonly [string, string, boolean] => [name, type, false];
      const columns = [column("id", "long"), column("score", "float"), column("ds", "string")];
      await pyiceberg.make(table, { columns, partition: [["ds", "identity"]] });
      const over = new AbortController();
      const faults = new Set<string>();
      let looks = 0;

      /** Appends its rows and deletes some of them, until the nights are over. @returns the ids of those that stay */
      const writeBeside = async (first: number): Promise<Set<number>> => {
        await using writer = startPyiceberg(url);
        const own = new Set<number>();
        for (let step = first; !over.signal.aborted; step += 1) {
          const deletes = step % 3 === 2 && own.size > 0;
          const [oldest = 0] = own;
          await sleep(torture ? 0 : 50);
          // It gives up where another writer was first.
          await (deletes
            ? writer.delete(table, `id = ${oldest}`)
            : writer.append(table, [{ id: step, score: 0, ds: `own${first}` }])
          ).then(
            () => (deletes ? own.delete(oldest) : own.add(step)),
            (error: unknown) => {
              expect(String(error)).toMatch(/CommitFailed/);
            },
          );
        }
        return own;
      };
      const look = async (): Promise<Map<string, number[]>> => {
        const found = new Map<string, number[]>();
        for (const { ds, id } of (await pyiceberg.read(table)).rows) {
          found.set(String(ds), [...(found.get(String(ds)) ?? []), Number(id)]);
        }
        for (const [ds, ids] of found) {
          if (ds.startsWith("n") && (ids.length !== 442 || new Set(ids).size !== 442)) {
            faults.add(`${ds}: ${ids.length} rows, ${new Set(ids).size} ids`);
          }
        }
        looks += 1;
        await sleep(torture ? 0 : 100);
        return found;
      };
      const looking = async (): Promise<void> => {
        while (!over.signal.aborted) {
          await look();
        }
      };
      const beside = [writeBeside(10_000), writeBeside(20_000)];
      const looker = looking();
      try {
        const iceberg = {
          catalog: { url, warehouse: "tests", token: "${CATALOG_TOKEN}" },
          table,
          partition: { ds: "${ds}" },
        };
        await publishNights({ iceberg }, env);
      } finally {
        over.abort();
      }
      const [one = new Set(), other = new Set()] = await Promise.all(beside);
      await looker;
      const found = await look();
      expect([...faults]).toEqual([]);
      expect([...found.keys()].filter((ds) => ds.startsWith("n")).toSorted()).toEqual(
        Array.from({ length: nights }, (_, night) => `n${night}`).toSorted(),
      );
      expect(new Set([...(found.get("own10000") ?? []), ...(found.get("own20000") ?? [])])).toEqual(
        new Set([...one, ...other]),
      );
      expect(looks).toBeGreaterThan(nights);
    });
  });
});
