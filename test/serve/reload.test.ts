import { join } from "node:path";
import { expect, test } from "vitest";
import { expectEnd, runHere } from "../support/cli.js";
import { smallJob } from "../support/faulty.js";
import { scratch } from "../support/job.js";
import { lastJson } from "../support/nights.js";
import { type SmallModel, writeModel } from "../support/onnx.js";
import { usePostgres } from "../support/postgres.js";
import { startServing } from "../support/serve.js";
import { torture } from "../support/torture.js";
import { until } from "../support/waiting.js";

const postgres = usePostgres();

const adding = (added: number): SmallModel => ({
  inputs: [{ name: "x", dtype: "float32", shape: ["N", 1] }],
  outputs: [{ name: "score", dtype: "float32", shape: ["N", 1] }],
  nodes: [{ op: "Add", from: ["x", "added"], to: "score" }],
  constants: [{ name: "added", values: [added] }],
});

const publishes = torture ? 10 : 3;

postgres.describe("a server under load", () => {
  test("nights are published and two rolled back: no request fails, and each answer is of one run", async () => {
    const database = await postgres.server().createDatabase();
    const table = { url: database.url, table: "scores.predictions", mode: "replace", key: ["id"], keep_previous: 3 };
    const { spec } = await smallJob(scratch.path, {
      model: adding(0),
      select: "SELECT i::BIGINT AS id, i::DOUBLE AS x FROM range(100) t(i)",
      params: { ds: "${today}" },
      output: { columns: ["id"], parquet: undefined, postgres: table },
      serve: { port: 0, key: ["id"], poll: "100ms" },
    });
    const addedBy = new Map<unknown, number>();
    const publish = async (night: number): Promise<string> => {
      await writeModel(join(scratch.path, "model.onnx"), adding(night));
      const date = `2026-11-${String(night + 1).padStart(2, "0")}`;
      const ended = await expectEnd(runHere(["run", spec, "--param", `ds=${date}`, "--json"]), 0);
      const runId = String(lastJson(ended)["run_id"]);
      addedBy.set(runId, night);
      return runId;
    };
    const runs = [await publish(0)];
    const server = await startServing(spec);

    const faults: unknown[] = [];
    const seen = new Set<unknown>();
    let requests = 0;
    const over = new AbortController();
    const load = async (lane: number): Promise<void> => {
      for (let n = lane; !over.signal.aborted; n += 1) {
        const rows = [n % 100, 1000 + n, (n * 7) % 100].map((id) => ({ id, x: id }));
        try {
          const answers = await server.predict(rows);
          requests += 1;
          const ids = new Set(answers.map((answer) => answer["run_id"]));
          const wrong = answers.filter(
            ({ score, run_id: runId }, index) => score !== Number(rows[index]?.id) + (addedBy.get(runId) ?? Number.NaN),
          );
          faults.push(...wrong, ...(ids.size === 1 ? [] : [answers]));
          seen.add(answers[1]?.["run_id"]);
        } catch (error) {
          faults.push(String(error));
        }
      }
    };
    const isServed = (runId: string | undefined): Promise<void> =>
      until(async () => (await (await server.get("/metrics")).text()).includes(`run_id="${runId}"`), 50);
    const lanes = [0, 1, 2, 3].map(load);
    for (let night = 1; night <= publishes; night += 1) {
      runs.push(await publish(night));
      await isServed(runs.at(-1));
    }
    for (const runId of [runs.at(-2), runs.at(-3)]) {
      await expectEnd(runHere(["rollback", spec]), 0);
      await isServed(runId);
    }
    over.abort();
    await Promise.all(lanes);
    expect(faults).toEqual([]);
    expect(seen.size).toBe(publishes + 1);
    expect(requests).toBeGreaterThan(100);
    server.child.kill("SIGTERM");
    expect(await server.ended).toBe(143);
  }, 240_000);
});
