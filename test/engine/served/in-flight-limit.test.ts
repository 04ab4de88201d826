import { describe, expect, test } from "vitest";
import { createBreaker } from "#src/engine/served/circuit-breaker.js";
import { createInFlightLimit, type InFlightLimit, type Turn } from "#src/engine/served/in-flight-limit.js";
import { createPool } from "#src/engine/served/pool.js";

interface Simulation {
  readonly limit: InFlightLimit;
  /** Lets time pass while requests always wait. Returns the answers. */
  run(ms: number): Promise<number>;
  /** From now on the server refuses all requests at once, or none. */
  overload(isOverloaded: boolean): void;
}

/** A server that takes some time for each request and computes only so many at once; the others wait there. */
async function simulate(server: {
  readonly latencyMs: number;
  readonly capacity: number;
  readonly most?: number;
}): Promise<Simulation> {
  const { latencyMs, capacity, most = 64 } = server;
  let nowMs = 0;
  const limit = createInFlightLimit({ most, nowMs: () => nowMs });
  const clock = { nowMs: () => nowMs, random: () => 0.5 };
  const one = { limit, breaker: createBreaker({ ...clock, onChange() {} }), pausedUntilMs: 0 };
  const retry = { ...clock, maxSeconds: 300, sleep: () => new Promise<void>(() => {}), warn() {}, warnedMs: new Map() };
  const pool = createPool({ servers: [one], retry, doing: "scoring", hint: "wait" });
  const computing: { readonly turn: Turn; readonly doneMs: number }[] = [];
  const queue: Turn[] = [];
  let refusing = false;
  const wait = async (): Promise<never> => {
    for (;;) {
      queue.push(await pool.begin());
    }
  };
  for (let waiting = 0; waiting < most; waiting += 1) {
    wait().catch(() => undefined);
  }
  const settle = async (): Promise<void> => {
    for (let turns = 0; turns < most + 8; turns += 1) {
      await Promise.resolve();
    }
  };
  const step = (): number => {
    for (const turn of refusing ? queue.splice(0) : []) {
      turn.end({ kind: "overloaded" });
    }
    const done = computing.filter(({ doneMs }) => doneMs <= nowMs);
    computing.splice(0, done.length);
    for (const { turn } of done) {
      turn.end({ kind: "answered", rows: 100 });
    }
    while (computing.length < capacity && queue.length > 0) {
      computing.push({ turn: queue.shift() as Turn, doneMs: nowMs + latencyMs });
    }
    return done.length;
  };
  return {
    limit,
    async run(ms) {
      let answers = 0;
      for (const endMs = nowMs + ms; nowMs < endMs; nowMs += 1) {
        answers += step();
        await settle();
      }
      return answers;
    },
    overload(isOverloaded) {
      refusing = isOverloaded;
    },
  };
}

describe("the number of requests in flight", () => {
  test("the number of requests in flight reaches what a server of 20 ms a request takes, 64, within 3 s", async () => {
    const server = await simulate({ latencyMs: 20, capacity: 64 });
    await server.run(3000);

    const answers = await server.run(1000);

    expect(answers).toBeGreaterThan(0.95 * 64 * 50);
  });

  test("the number of requests in flight does not grow much beyond what a server computes at once", async () => {
    const server = await simulate({ latencyMs: 20, capacity: 6 });
    await server.run(5000);

    expect(server.limit.limit).toBeGreaterThanOrEqual(6);
    expect(server.limit.limit).toBeLessThanOrEqual(12);
    expect(await server.run(1000)).toBeGreaterThan(0.9 * 6 * 50);
  });

  test("the number of requests in flight stays within the one that is given", async () => {
    const server = await simulate({ latencyMs: 20, capacity: 64, most: 5 });
    await server.run(3000);

    expect(server.limit.limit).toBe(5);
    expect(server.limit.highest).toBe(5);
  });

  test("an overloaded server halves the number of requests in flight once for all that were in flight", async () => {
    const server = await simulate({ latencyMs: 20, capacity: 64, most: 16 });
    await server.run(2000);
    expect(server.limit.limit).toBe(16);
    server.overload(true);
    await server.run(21);
    const { limit } = server.limit;
    expect(limit).toBeLessThanOrEqual(8);

    await server.run(200);
    expect(server.limit.limit).toBe(1);
  });

  test("the number of requests in flight grows again when an overloaded server recovers", async () => {
    const server = await simulate({ latencyMs: 20, capacity: 16 });
    await server.run(2000);
    server.overload(true);
    await server.run(200);
    server.overload(false);

    await server.run(8000);

    expect(await server.run(1000)).toBeGreaterThan(0.9 * 16 * 50);
  });

  test("the number of requests in flight does not grow while no request waits", () => {
    const limit = createInFlightLimit({ most: 64, nowMs: () => performance.now() });
    for (let request = 0; request < 200; request += 1) {
      limit.begin(() => false).end({ kind: "answered", rows: 1 });
    }
    expect(limit.limit).toBe(2);
  });
});

type Limit = ReturnType<typeof createInFlightLimit>;

const eager = (): Limit => createInFlightLimit({ most: 1000, nowMs: () => 0, isEager: true });

function end(limit: Limit, kind: "answered" | "overloaded"): void {
  limit.begin(() => true).end(kind === "answered" ? { kind, rows: 1 } : { kind });
}

describe("a limit that grows with each answer", () => {
  test("one failure in a hundred answers does not halve it", () => {
    const limit = eager();
    for (let number = 1; number <= 500; number += 1) {
      end(limit, number % 100 === 0 ? "overloaded" : "answered");
    }
    expect(limit.limit).toBe(16 + 495);
  });

  test("failures that follow on each other halve it", () => {
    const limit = eager();
    for (const kind of ["overloaded", "answered", "overloaded", "overloaded", "overloaded"] as const) {
      end(limit, kind);
    }
    expect(limit.limit).toBe(8);
  });
});
