import { describe, expect, test } from "vitest";
import { createBreaker } from "#src/engine/served/circuit-breaker.js";
import { createInFlightLimit } from "#src/engine/served/in-flight-limit.js";
import { createPool, type Pool, type PooledServer } from "#src/engine/served/pool.js";

interface NamedServer extends PooledServer {
  readonly name: string;
  isAway: boolean;
  requests: number;
}

interface World {
  readonly servers: readonly NamedServer[];
  readonly pool: Pool<NamedServer>;
  readonly told: string[];
  /** Sends requests one after the other for so long, each taking 10 ms. Ends early if all servers are away for too long. */
  readonly send: (ms: number) => Promise<unknown>;
}

function world(names: readonly string[], maxSeconds = 300): World {
  let nowMs = 0;
  const told: string[] = [];
  const clock = { nowMs: () => nowMs, random: () => 0.5 };
  const servers = names.map((name) => ({
    name,
    isAway: false,
    requests: 0,
    pausedUntilMs: 0,
    limit: createInFlightLimit({ most: 64, nowMs: () => nowMs }),
    breaker: createBreaker({ ...clock, onChange: (isOpen) => void told.push(`${name} ${isOpen ? "away" : "back"}`) }),
  }));
  const sleep = (ms: number): Promise<void> => {
    nowMs += ms;
    return Promise.resolve();
  };
  const retry = { ...clock, maxSeconds, sleep, warn() {}, warnedMs: new Map() };
  const pool = createPool<NamedServer>({ servers, retry, doing: "scoring", hint: "wait" });
  return {
    servers,
    pool,
    told,
    async send(ms) {
      for (const endMs = nowMs + ms; nowMs < endMs; nowMs += 10) {
        try {
          const turn = await pool.begin();
          turn.server.requests += 1;
          if (turn.server.isAway) {
            turn.server.breaker.failed("ECONNREFUSED", turn.sent);
            turn.end({ kind: "overloaded" });
          } else {
            turn.server.breaker.answered();
            turn.end({ kind: "answered", rows: 1 });
          }
        } catch (error) {
          return error;
        }
      }
      return undefined;
    },
  };
}

describe("requests to several servers", () => {
  test("a server that is unavailable gets a few requests, and all others go to the server that answers", async () => {
    const { servers, told, send } = world(["a", "b"]);
    const [a, b] = servers as readonly [NamedServer, NamedServer];
    a.isAway = true;

    await send(60_000);

    expect(a.requests).toBeGreaterThan(10);
    expect(a.requests).toBeLessThan(30);
    expect(b.requests).toBeGreaterThan(5900);
    expect(told).toEqual(["a away"]);
  });

  test("a server that is back is used again within the longest pause, 5 s", async () => {
    const { servers, told, send } = world(["a", "b"]);
    const [a] = servers as readonly [NamedServer];
    a.isAway = true;
    await send(60_000);
    a.isAway = false;
    const before = a.requests;

    await send(5000);
    await send(1000);

    expect(a.requests - before).toBeGreaterThan(30);
    expect(told).toEqual(["a away", "a back"]);
  });

  test("a single dead server gets a bounded number of requests until the retry budget is over, then none", async () => {
    const { servers, send } = world(["a"], 60);
    const [a] = servers as readonly [NamedServer];
    a.isAway = true;

    const ended = await send(1_000_000);

    expect(ended).toMatchObject({
      code: "NETWORK",
      message: expect.stringMatching(/ECONNREFUSED \(tried \d+ times in 6\d s\)/),
    });
    expect(a.requests).toBeLessThan(35);
  });

  test("a server that asked for a pause gets no request in it", async () => {
    const { servers, send } = world(["a", "b"]);
    const [a, b] = servers as readonly [NamedServer, NamedServer];
    a.pausedUntilMs = 10_000;

    await send(9900);
    expect([a.requests, b.requests]).toEqual([0, 990]);
    await send(1000);
    expect(a.requests).toBeGreaterThan(0);
  });
});

test("a server that becomes ready while none is found is not forgotten", async () => {
  let nowMs = 0;
  const nowAfter = (): number => (nowMs += 1); // each look at the clock takes its time
  const clock = { nowMs: nowAfter, random: () => 0.5 };
  const sleep = (ms: number): Promise<void> => {
    nowMs += ms;
    return Promise.resolve();
  };
  const server = {
    pausedUntilMs: 1.5, // later than the first look, and earlier than the second
    limit: createInFlightLimit({ most: 1, nowMs: () => 0 }),
    breaker: createBreaker({ nowMs: () => 0, random: () => 0.5, onChange() {} }),
  };
  const retry = { ...clock, maxSeconds: 10, sleep, warn() {}, warnedMs: new Map() };
  const pool = createPool<PooledServer>({ servers: [server], retry, doing: "scoring", hint: "wait" });

  const turn = await Promise.race([pool.begin(), new Promise((resolve) => setImmediate(resolve, "forgotten"))]);

  expect(turn).toMatchObject({ server });
});
