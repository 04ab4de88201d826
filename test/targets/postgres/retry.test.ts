import { DatabaseError } from "pg";
import { describe, expect, test } from "vitest";
import { JobError } from "#src/base/errors.js";
import { retrying } from "#src/targets/postgres/connections.js";

function stateError(code: string): DatabaseError {
  return Object.assign(new DatabaseError(`state ${code}`, 0, "error"), { code });
}

function world(maxSeconds: number, random = 1) {
  const slept: number[] = [];
  const warned: string[] = [];
  let now = 0;
  const tools = {
    maxSeconds,
    nowMs: () => now,
    random: () => random,
    sleep: (ms: number) => {
      slept.push(ms);
      now += ms;
      return Promise.resolve();
    },
    warn: (message: string) => {
      warned.push(message);
    },
    warnedMs: new Map(),
  };
  return { tools, slept, warned };
}

describe("transient errors of Postgres", () => {
  test("a transient error is retried with pauses that double up to a limit", async () => {
    const { tools, slept, warned } = world(60);
    let tries = 0;
    const result = await retrying("writing", tools, () => {
      tries += 1;
      return tries < 10 ? Promise.reject(stateError("57P01")) : Promise.resolve("done");
    });
    expect(result).toBe("done");
    expect(slept).toEqual([200, 400, 800, 1600, 3200, 6400, 10_000, 10_000, 10_000]);
    expect(warned).toEqual(["writing: state 57P01 [57P01]; trying again for up to 60 s"]);
  });

  test("an outage is warned of when it begins and then once a minute, however many calls it meets", async () => {
    const { tools, slept, warned } = world(300);
    const call = (): Promise<unknown> =>
      retrying("writing", tools, () => Promise.reject(stateError("57P01"))).catch((error: unknown) => error);
    await call();
    expect(slept.length).toBeGreaterThan(30);
    expect(warned).toHaveLength(5);
    expect(warned[4]).toMatch(/^writing: state 57P01 \[57P01\]; trying again for up to (4|5)\d s$/);

    const atOnce = world(300);
    await Promise.all(
      Array.from({ length: 8 }, () =>
        retrying("writing", atOnce.tools, () => Promise.reject(stateError("57P01"))).catch(() => 0),
      ),
    );
    expect(atOnce.warned.length).toBeLessThanOrEqual(6);
  });

  test("retries end in time, and committed spans are kept", async () => {
    const { tools, slept } = world(3);
    const error: unknown = await retrying("writing", tools, () =>
      Promise.reject(Object.assign(new Error("connect ECONNREFUSED"), { code: "ECONNREFUSED" })),
    ).catch((caught: unknown) => caught);
    expect(error).toMatchObject({ code: "DATABASE", exitCode: 75 });
    expect(slept.reduce((sum, ms) => sum + ms, 0)).toBeLessThanOrEqual(3000);
  });

  const transient = "08006 08P01 40001 40P01 53300 53100 55P03 57014 57P01 57P02 57P03 25006 25P03 25P04 XX000";
  test.each(transient.split(" "))("SQLSTATE %s is transient", async (code) => {
    const { tools, slept } = world(10);
    let failed = false;
    await retrying("x", tools, () => {
      if (!failed) {
        failed = true;
        return Promise.reject(stateError(code));
      }
      return Promise.resolve();
    });
    expect(slept).toHaveLength(1);
  });

  test("a retry gets the error of the last try", async () => {
    const { tools } = world(10);
    const seen: unknown[] = [];
    await retrying("x", tools, (last) => {
      seen.push(last);
      return seen.length < 2 ? Promise.reject(stateError("55P03")) : Promise.resolve();
    });
    expect(seen).toMatchObject([undefined, { code: "55P03" }]);
  });

  test("retries stop when the job is stopped", async () => {
    const { tools } = world(10);
    const stop = new JobError("SIGTERM", "stopping");
    const sleeping = { ...tools, sleep: () => Promise.reject(stop) };
    await expect(retrying("x", sleeping, () => Promise.reject(stateError("57P01")))).rejects.toBe(stop);
  });
});

describe("permanent errors of Postgres", () => {
  test.each([
    ["28P01", 64],
    ["28000", 64],
    ["3D000", 64],
    ["42501", 64],
    ["42P01", 66],
    ["42703", 64],
    ["22001", 65],
    ["23514", 65],
    ["23505", 65],
    ["21000", 65],
    ["22P03", 64],
    ["38000", 65],
    ["54000", 65],
    ["55000", 65],
    ["XX001", 65],
    ["ZZ999", 65],
    ["P0001", 65],
  ])("SQLSTATE %s ends the job at once, with %d", async (code, exitCode) => {
    const { tools, slept } = world(10);
    await expect(retrying("x", tools, () => Promise.reject(stateError(code)))).rejects.toMatchObject({ exitCode });
    expect(slept).toEqual([]);
  });

  test("an unknown error is a bug", async () => {
    const { tools } = world(10);
    const bug = new TypeError("x is not a function");
    await expect(retrying("x", tools, () => Promise.reject(bug))).rejects.toBe(bug);
  });
});
