import { readFile } from "node:fs/promises";
import { connect } from "node:net";
import { setTimeout } from "node:timers/promises";
import { expect, test } from "vitest";
import { expectEnd, runHere } from "../support/cli.js";
import { eighthsJob } from "../support/faulty.js";
import { scratch, writeSpec } from "../support/job.js";
import { startServing } from "../support/serve.js";
import { until } from "../support/waiting.js";
import { torture } from "../support/torture.js";
import { fixtureNamed } from "../support/world.js";

async function residentBytes(pid: number | undefined): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, "utf8");
  return Number(/^VmRSS:\s*(\d+)/m.exec(status)?.[1]) * 1024;
}

const seconds = torture ? 600 : 8;

test(
  "more requests than the model can answer are refused at once, and take no more memory",
  async () => {
    const spec = await writeSpec(scratch.path, fixtureNamed("sentences-mean"), {
      serve: { port: 0, queue: 200, batch: { rows: 16 } },
    });
    await expectEnd(runHere(["run", spec]), 0);
    const server = await startServing(spec);
    const row = { id: 1, input_ids: [101, 102, 103], token_type_ids: [0, 0, 0] };
    const body = JSON.stringify({ rows: Array.from({ length: 50 }, () => row) });

    const tookMs: Record<number, number[]> = { 200: [], 503: [] };
    const endMs = performance.now() + seconds * 1000;
    let warmBytes = 0;
    const lane = async (): Promise<void> => {
      while (performance.now() < endMs) {
        const sinceMs = performance.now();
        const response = await server.post("/predict", body);
        await response.arrayBuffer();
        (tookMs[response.status] ??= []).push(performance.now() - sinceMs);
        warmBytes ||= endMs - performance.now() < seconds * 600 ? await residentBytes(server.child.pid) : 0;
      }
    };
    await Promise.all(Array.from({ length: 40 }, lane));

    expect(Object.keys(tookMs)).toEqual(["200", "503"]);
    const [answered, refused] = Object.values(tookMs).map((times) => {
      expect(times.length).toBeGreaterThan(0);
      return times.toSorted((one, other) => one - other)[times.length >> 1] ?? 0;
    });
    expect(refused).toBeLessThan(answered ?? 0);
    expect((await residentBytes(server.child.pid)) - warmBytes).toBeLessThan(64 * 1024 * 1024);
  },
  (seconds + 60) * 1000,
);

test("requests that come faster than they can be read are refused, also where no row waits for the model", async () => {
  const spec = await eighthsJob(10, { serve: { port: 0, queue: 100_000 } });
  await expectEnd(runHere(["run", spec]), 0);
  const server = await startServing(spec);
  const body = JSON.stringify({ rows: [{ id: 1, x: 1.5 }] });
  const statuses = new Set<number>();
  const post = async (): Promise<void> => {
    const response = await server.post("/predict", body);
    await response.arrayBuffer();
    statuses.add(response.status);
  };
  const { port } = new URL(server.url);
  server.child.kill("SIGSTOP");
  const sockets = Array.from({ length: 700 }, () => connect(Number(port), "127.0.0.1"));
  await until(() => sockets.every(({ readyState }) => readyState === "open"));
  sockets.forEach((socket) => socket.destroy());
  for (let burst = 0; burst < 20 && !statuses.has(503); burst += 1) {
    server.child.kill("SIGSTOP"); // so that the requests of all connections come in one turn of its event loop
    const posted = Array.from({ length: 600 }, post);
    await setTimeout(200);
    server.child.kill("SIGCONT");
    await Promise.all(posted);
  }
  expect(statuses).toEqual(new Set([200, 503]));
  await until(async () => (await server.post("/predict", body)).status === 200, 50);
}, 60_000);
