import { describe, expect, test } from "vitest";
import { runHere } from "../support/cli.js";
import { servedJob } from "../support/served-job.js";

interface Found {
  readonly model: string;
  readonly servers: readonly { readonly url: string; readonly state: string; readonly found: string }[];
  readonly signature: { readonly inputs: readonly object[] } | null;
  readonly batches: readonly { readonly rows: number }[];
  readonly requests: readonly { readonly in_flight: number }[];
  readonly server_statistics: object | null;
}

describe("doctor for a model on servers", () => {
  test("doctor shows each server, the signature, the times of batches and the throughput of requests at once", async () => {
    await using job = await servedJob({ copies: 2, maxBatchSize: 300, versions: ["7"], hasStatistics: true });
    await job.others[0]?.[Symbol.asyncDispose]();

    const [shown, json] = [await runHere(["doctor", job.spec]), await runHere(["doctor", job.spec, "--json"])];

    expect([shown.code, json.code], shown.stderr).toEqual([0, 0]);
    expect(shown.stdout).toMatch(/^1 of 2 servers ready\.\n/);
    expect(shown.stdout).toMatch(/http:\S+ +ready +version 7\n/);
    expect(shown.stdout).toMatch(/http:\S+ +fails +asking for m on http:\S+: ECONNREFUSED/);
    expect(shown.stdout).toMatch(/input +features +float32 \[N,10\]/);
    expect(shown.stdout).toMatch(/in flight +rows\/s/);
    expect(shown.stdout).toContain(
      "the server's own statistics: a request waits 2 ms and is computed in 5 ms; an execution has 2 requests",
    );
    const found = JSON.parse(json.stdout) as Found;
    expect(found.servers.map(({ state }) => state)).toEqual(["ready", "fails"]);
    expect(found.signature?.inputs).toEqual([{ name: "features", dtype: "float32", shape: [null, 10] }]);
    expect(found.batches.map(({ rows }) => rows)).toEqual([1, 16, 64, 256]);
    expect(found.requests[0]).toMatchObject({ in_flight: 1 });
    expect(found.server_statistics).toEqual({ queue_ms: 2, compute_ms: 5, requests_joined: 2 });
  });

  test("doctor ends with 75 if no server answers, and with 64 if the server does not have the model", async () => {
    await using job = await servedJob();
    await job.rewrite({ model: { server: { protocol: "v2", url: job.server.url, name: "other" } } });
    const unknown = await runHere(["doctor", job.spec]);
    await job.server[Symbol.asyncDispose]();
    const away = await runHere(["doctor", job.spec]);

    expect(unknown, unknown.stderr).toMatchObject({ code: 64 });
    expect(unknown.stdout).toContain("is not found");
    expect(away, away.stderr).toMatchObject({ code: 75 });
    expect(away.stdout).toContain("fails");
  });

  test("doctor says that a model refuses blank rows, and measures nothing then", async () => {
    await using job = await servedJob();
    job.server.misbehave = () => ({ status: 400, said: "zero is no age" });
    const shown = await runHere(["doctor", job.spec]);
    expect(shown, shown.stderr).toMatchObject({ code: 0 });
    expect(shown.stdout).toContain("no more rows: the server answered 400: zero is no age");
    expect(shown.stdout).not.toContain("own statistics");
  });
});
