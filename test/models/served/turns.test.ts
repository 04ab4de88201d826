import { describe, expect, test } from "vitest";
import type { ModelServer, ModelServers } from "#src/models/served/server.js";
import { openTurns, type RequestEnd, type Turn } from "#src/models/served/turns.js";
import { retryClock } from "../../support/asked-places.js";

const answered = { kind: "answered", rows: 100, ms: 1 } as const;
const overloaded = { kind: "overloaded", found: "503" } as const;

interface Clock {
  nowMs: number;
  readonly told: string[];
}

function serversAt(clock: Clock, names: readonly string[], retry: Partial<ModelServer["retry"]> = {}): ModelServers {
  const tools = retryClock({
    maxSeconds: 300,
    nowMs: () => clock.nowMs,
    sleep: () => new Promise<void>(() => {}),
    warn: (message: string) => void clock.told.push(message),
    ...retry,
  });
  return names.map((url) => ({ url, most: 64, retry: tools })) as unknown as ModelServers;
}

/** Lets turns that were given reach those that wait for them. */
async function settle(): Promise<void> {
  await new Promise((done) => {
    setImmediate(done);
  });
}

/** Requests that always wait. `inFlight` are the turns that they were given, the oldest first. */
type Turns = ReturnType<typeof openTurns>;

function askAlways(turns: Turns, count: number): Turn[] {
  const inFlight: Turn[] = [];
  const wait = async (): Promise<never> => {
    for (;;) {
      inFlight.push(await turns.begin(0, undefined));
    }
  };
  for (let waiting = 0; waiting < count; waiting += 1) {
    wait().catch(() => undefined);
  }
  return inFlight;
}

interface Simulation {
  readonly highest: () => number;
  readonly inFlight: () => number;
  /** Lets time pass while requests always wait. Returns the answers. */
  run(ms: number): Promise<number>;
  overload(isOverloaded: boolean): void;
}

/** A server that takes some time for each request and computes only so many at once; the others wait there. */
function simulate({
  latencyMs,
  capacity,
  most = 64,
}: {
  latencyMs: number;
  capacity: number;
  most?: number;
}): Simulation {
  const clock = { nowMs: 0, told: [] };
  const [server] = serversAt(clock, ["a"]);
  const turns = openTurns([{ ...server, most }], "scoring", false);
  const queue = askAlways(turns, most);
  const computing: { readonly turn: Turn; readonly doneMs: number }[] = [];
  let refusing = false;
  const step = (): number => {
    for (const turn of refusing ? [...queue.splice(0), ...computing.splice(0).map((one) => one.turn)] : []) {
      turn.end(overloaded);
    }
    const done = computing.filter(({ doneMs }) => doneMs <= clock.nowMs);
    computing.splice(0, done.length);
    for (const { turn } of done) {
      turn.end(answered);
    }
    while (computing.length < capacity && queue.length > 0) {
      computing.push({ turn: queue.shift() as Turn, doneMs: clock.nowMs + latencyMs });
    }
    return done.length;
  };
  return {
    highest: () => turns.traffic.inFlight,
    inFlight: () => queue.length + computing.length,
    async run(ms) {
      let answers = 0;
      for (const endMs = clock.nowMs + ms; clock.nowMs < endMs; clock.nowMs += 1) {
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
    const server = simulate({ latencyMs: 20, capacity: 64 });
    await server.run(3000);

    const answers = await server.run(1000);

    expect(answers).toBeGreaterThan(0.95 * 64 * 50);
  });

  test("the number of requests in flight does not grow much beyond what a server computes at once", async () => {
    const server = simulate({ latencyMs: 20, capacity: 6 });
    await server.run(5000);

    expect(server.inFlight()).toBeGreaterThanOrEqual(6);
    expect(server.inFlight()).toBeLessThanOrEqual(12);
    expect(await server.run(1000)).toBeGreaterThan(0.9 * 6 * 50);
  });

  test("the number of requests in flight stays within the one that is given", async () => {
    const server = simulate({ latencyMs: 20, capacity: 64, most: 5 });
    await server.run(3000);

    expect(server.inFlight()).toBe(5);
    expect(server.highest()).toBe(5);
  });

  test("an overloaded server halves the number of requests in flight once for all that were in flight", async () => {
    const server = simulate({ latencyMs: 20, capacity: 64, most: 16 });
    await server.run(2000);
    expect(server.inFlight()).toBe(16);
    server.overload(true);
    await server.run(1);
    expect(server.inFlight()).toBe(8);

    await server.run(200);
    expect(server.inFlight()).toBe(1);
  });

  test("the number of requests in flight grows again when an overloaded server recovers", async () => {
    const server = simulate({ latencyMs: 20, capacity: 16 });
    await server.run(2000);
    server.overload(true);
    await server.run(200);
    server.overload(false);

    await server.run(8000);

    expect(await server.run(1000)).toBeGreaterThan(0.9 * 16 * 50);
  });

  test("the number of requests in flight does not grow while no request waits", async () => {
    const turns = openTurns(serversAt({ nowMs: 0, told: [] }, ["a"]), "scoring", false);
    for (let request = 0; request < 200; request += 1) {
      (await turns.begin(0, undefined)).end(answered);
    }

    const inFlight = askAlways(turns, 64);
    await settle();

    expect(inFlight.length).toBe(2);
  });

  test("the number of requests in flight to several servers together stays within the one that is given", async () => {
    const turns = openTurns(serversAt({ nowMs: 0, told: [] }, ["a", "b", "c", "d", "e"]), "asking", true);

    const inFlight = askAlways(turns, 200);
    await settle();

    expect(inFlight.length).toBe(64);
  });
});

async function limitAfter(ends: readonly RequestEnd[]): Promise<number> {
  const [server] = serversAt({ nowMs: 0, told: [] }, ["a"]);
  const turns = openTurns([{ ...server, most: 1000 }], "asking", true);
  const inFlight = askAlways(turns, 1000);
  await settle();
  for (const end of ends) {
    inFlight.shift()?.end(end);
    await settle();
  }
  for (let left = 20; left > 0; left -= 1) {
    inFlight.shift()?.end({ kind: "failed", found: "says nothing of the load" });
    await settle();
  }
  return inFlight.length;
}

describe("a limit that grows with each answer", () => {
  const one: RequestEnd = { kind: "answered", rows: 1, ms: 1 };

  test("one failure in a hundred answers does not halve it", async () => {
    const ends = Array.from({ length: 500 }, (_, index) => (index % 100 === 99 ? overloaded : one));
    expect(await limitAfter(ends)).toBe(16 + 495);
  });

  test("failures that follow on each other halve it", async () => {
    expect(await limitAfter([overloaded, one, overloaded, overloaded, overloaded])).toBe(8);
  });
});

interface World {
  readonly clock: Clock;
  readonly turns: Turns;
  readonly away: Set<string>;
  readonly requests: Record<string, number>;
  /** Sends requests one after the other for so long, each taking 10 ms. Ends early if all servers are away for too long. */
  readonly send: (ms: number) => Promise<unknown>;
}

function world(names: readonly string[], maxSeconds = 300): World {
  const clock: Clock = { nowMs: 0, told: [] };
  const sleep = (ms: number): Promise<void> => {
    clock.nowMs += ms;
    return Promise.resolve();
  };
  const turns = openTurns(serversAt(clock, names, { maxSeconds, sleep }), "scoring", false);
  const away = new Set<string>();
  const requests = Object.fromEntries(names.map((name) => [name, 0]));
  return {
    clock,
    turns,
    away,
    requests,
    async send(ms) {
      for (const endMs = clock.nowMs + ms; clock.nowMs < endMs; clock.nowMs += 10) {
        try {
          const turn = await turns.begin(0, undefined);
          const { url } = turn.server;
          requests[url] = (requests[url] ?? 0) + 1;
          turn.end(away.has(url) ? { kind: "unavailable", found: "ECONNREFUSED" } : { ...answered, rows: 1 });
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
    const { clock, away, requests, send } = world(["a", "b"]);
    away.add("a");

    await send(60_000);

    expect(requests["a"]).toBeGreaterThan(10);
    expect(requests["a"]).toBeLessThan(30);
    expect(requests["b"]).toBeGreaterThan(5900);
    expect(clock.told).toEqual(["a is left out for now: ECONNREFUSED"]);
  });

  test("a server that is back is used again within the longest pause, 5 s", async () => {
    const { clock, away, requests, send } = world(["a", "b"]);
    away.add("a");
    await send(60_000);
    away.clear();
    const before = requests["a"] ?? 0;

    await send(5000);
    await send(1000);

    expect((requests["a"] ?? 0) - before).toBeGreaterThan(30);
    expect(clock.told).toEqual(["a is left out for now: ECONNREFUSED", "a answers again"]);
  });

  test("a single dead server gets a bounded number of requests until the retry budget is over, then none", async () => {
    const { away, requests, send } = world(["a"], 60);
    away.add("a");

    const ended = await send(1_000_000);

    expect(ended).toMatchObject({
      code: "NETWORK",
      message: expect.stringMatching(/ECONNREFUSED \(tried \d+ times in 6\d s\)/),
    });
    expect(requests["a"]).toBeLessThan(35);
  });

  test("a server that asked for a pause gets no request in it", async () => {
    const { turns, requests, send } = world(["a", "b"]);
    const turn = await turns.begin(0, undefined);
    turn.pause("429", 10_000);
    turn.end({ kind: "failed", found: "429" });

    await send(9900);
    expect(requests).toEqual({ a: 0, b: 990 });
    await send(1000);
    expect(requests["a"]).toBeGreaterThan(0);
  });

  test("a server that becomes ready while none is found is not forgotten", async () => {
    const clock: Clock = { nowMs: 0, told: [] };
    const nowMs = (): number => (clock.nowMs += 1); // each look at the clock takes its time
    const sleep = (ms: number): Promise<void> => {
      clock.nowMs += ms;
      return Promise.resolve();
    };
    const turns = openTurns(serversAt(clock, ["a"], { nowMs, sleep }), "scoring", false);
    const turn = await turns.begin(0, undefined);
    turn.pause("429", 1.5); // ends after the next look at the clock, and before the one after it
    turn.end({ kind: "failed", found: "429" });

    const next = await Promise.race([
      turns.begin(0, undefined),
      new Promise((resolve) => setImmediate(resolve, "forgotten")),
    ]);

    expect(next).toMatchObject({ server: { url: "a" } });
  });

  test("an error that ends the attempt ends the requests that wait, and later ones", async () => {
    const { turns } = world(["a"]);
    const inFlight = askAlways(turns, 2);
    const waiting = turns.begin(0, undefined);
    await settle();

    turns.stop("the first error");
    turns.stop("a later one");

    expect(inFlight.length).toBe(2);
    await expect(waiting).rejects.toBe("the first error");
    await expect(turns.begin(0, undefined)).rejects.toBe("the first error");
  });
});
