import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { runCli } from "../support/cli.js";
import { scratch } from "../support/job.js";
import { missing, skipped, startBrokers } from "../support/kafka.js";
import { writeModel } from "../support/onnx.js";
import { usePostgres } from "../support/postgres.js";
import { torture } from "../support/torture.js";
import { until } from "../support/waiting.js";

const postgres = usePostgres();
const rounds = 4;
const recordsPerRound = 1_250_000;

postgres.describe("a cluster of Kafka", () => {
  test.skipIf(!torture || missing !== undefined)(
    `whose leaders are killed is read once, into a table by append and by upsert${skipped}`,
    async () => {
      await using brokers = await startBrokers(3);
      await until(
        () =>
          brokers.act("create", "led", 4, {}).then(
            () => true,
            () => false,
          ),
        500,
      );
      await writeModel(join(scratch.path, "model.onnx"), {
        inputs: [{ name: "x", dtype: "float64", shape: ["N", 1] }],
        outputs: [{ name: "score", dtype: "float64", shape: ["N", 1] }],
        nodes: [{ op: "Identity", from: ["x"], to: "score" }],
      });
      const database = await postgres.server().createDatabase();
      const key = ["_partition", "_offset"];
      await database.query(`CREATE TABLE by_append (id bigint, _partition int, _offset bigint, score float8)`);
      await database.query(`CREATE TABLE by_upsert (LIKE by_append, PRIMARY KEY (_partition, _offset))`);
      const modes = [
        { name: "by_append", mode: { mode: "append" } },
        { name: "by_upsert", mode: { mode: "upsert", key } },
      ];
      for (const { name, mode } of modes) {
        const spec = {
          version: 1,
          name: mode.mode,
          input: {
            since: "last_run",
            kafka: { brokers: brokers.addresses, topic: "led", columns: { id: "int64", x: "float64" } },
          },
          model: { path: "model.onnx", inputs: { x: ["x"] } },
          output: { columns: ["id", ...key], postgres: { url: database.url, table: name, ...mode } },
          commit_rows: 20_000,
          retry: { max_seconds: 300 },
        };
        await writeFile(join(scratch.path, `${name}.yaml`), JSON.stringify(spec));
      }
      for (let round = 0; round < rounds; round += 1) {
        expect(await brokers.act("fill", "led", round * recordsPerRound, recordsPerRound)).toBe(0);
        for (const { name } of modes) {
          const count = async (): Promise<number> =>
            Number((await database.query(`SELECT count(*) FROM ${name}`))[0]?.["count"]);
          const before = await count();
          let killing: Promise<() => Promise<void>> | undefined;
          const { code, stderr } = await runCli(["run", join(scratch.path, `${name}.yaml`), "--no-progress"], {
            onStart() {
              killing = until(async () => (await count()) > before, 20).then(() => brokers.killLeader("led"));
            },
          });
          expect(code, stderr).toBe(0);
          await (await killing)?.();
        }
      }
      const all = rounds * recordsPerRound;
      for (const { name } of modes) {
        const [found] = await database.query(
          `SELECT count(*) AS rows, count(DISTINCT id) AS ids, count(DISTINCT (_partition, _offset)) AS places, sum(id) AS sum,
             count(*) FILTER (WHERE score = id / 4.0) AS right FROM ${name}`,
        );
        const sum = String((BigInt(all) * BigInt(all - 1)) / 2n);
        const total = String(all);
        expect(found).toEqual({ rows: total, ids: total, places: total, sum, right: total });
      }
    },
    3_600_000,
  );
});
