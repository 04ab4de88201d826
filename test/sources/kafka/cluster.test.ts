import { createServer, type Socket } from "node:net";
import { afterEach, describe, expect, test } from "vitest";
import { type Cluster, openCluster } from "#src/sources/kafka/cluster.js";
import { openConnection } from "#src/sources/kafka/connection.js";
import { RequestBody } from "#src/sources/kafka/wire.js";

type Answers = (api: number, body: Buffer, address: { readonly port: number }) => Buffer | undefined;

const apis = { fetch: 1, offsets: 2, metadata: 3 } as const;
function partitionBytes(write: (body: RequestBody) => void): Buffer {
  const body = new RequestBody();
  body.array(["t"], (topic) => {
    body.text(topic).array([0], () => {
      write(body);
    });
  });
  return body.done();
}

interface Fake extends AsyncDisposable {
  readonly port: number;
  readonly opened: () => number;
  readonly open: Set<Socket>;
}

/** A broker that answers what it is told to: undefined: nothing. `raw`: its answers are no frames. */
async function fakeBroker(answers: Answers, { raw = false } = {}): Promise<Fake> {
  const open = new Set<Socket>();
  let opened = 0;
  const server = createServer((socket) => {
    opened += 1;
    open.add(socket);
    socket.on("close", () => open.delete(socket));
    socket.on("error", () => undefined);
    let held = Buffer.alloc(0);
    socket.on("data", (chunk: Buffer) => {
      held = Buffer.concat([held, chunk]);
      while (held.length >= 4 && held.length >= 4 + held.readInt32BE()) {
        const message = held.subarray(4, 4 + held.readInt32BE());
        held = held.subarray(4 + message.length);
        const api = message.readInt16BE();
        const answer = answers(api, message, { port: (server.address() as { port: number }).port });
        if (answer !== undefined) {
          const head = [message.subarray(4, 8), Buffer.alloc(api === apis.metadata ? 1 : 0)];
          socket.write(raw ? answer : new RequestBody().bytes(Buffer.concat([...head, answer])).done());
        }
      }
    });
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  return {
    port: (server.address() as { port: number }).port,
    opened: () => opened,
    open,
    async [Symbol.asyncDispose]() {
      for (const socket of open) {
        socket.destroy();
      }
      await new Promise((done) => server.close(done));
    },
  };
}

function metadata(port: number, { partitions = 1, epoch = 0 } = {}): Buffer {
  const body = new RequestBody().int32(0).int8(2).int32(1).int8(10).raw(Buffer.from("localhost")).int32(port);
  body.int8(0).int8(0).int8(0).int32(1).int8(2); // no rack; the cluster's id; its controller; one topic
  body
    .int16(0)
    .int8(2)
    .raw(Buffer.from("t"))
    .raw(Buffer.alloc(16, 7))
    .int8(0)
    .int8(partitions + 1);
  for (let partition = 0; partition < partitions; partition += 1) {
    body.int16(0).int32(partition).int32(1).int32(epoch).int8(1).int8(1).int8(1).int8(0);
  }
  return body.int32(0).int8(0).int32(0).int8(0).done();
}

const cleanup: (AsyncDisposable | Disposable)[] = [];
afterEach(async () => {
  for (const resource of cleanup.splice(0).toReversed()) {
    await (Symbol.asyncDispose in resource ? resource[Symbol.asyncDispose]() : resource[Symbol.dispose]());
  }
});

async function openFake(answers: Answers): Promise<{ readonly broker: Fake; readonly cluster: Cluster }> {
  const broker = await fakeBroker(answers);
  cleanup.push(broker);
  const retry = {
    maxSeconds: 2,
    nowMs: () => performance.now(),
    random: () => 0.1,
    sleep: async (ms: number) => await new Promise<void>((done) => setTimeout(done, ms)),
    warn() {},
    warnedMs: new Map<string, number>(),
  };
  const cluster = openCluster({
    brokers: [`127.0.0.1:${broker.port}`],
    topic: "t",
    tls: undefined,
    login: undefined,
    retry,
    signal: new AbortController().signal,
  });
  cleanup.push(cluster);
  return { broker, cluster };
}

function fetched(records: Buffer): Buffer {
  const partition = partitionBytes((body) =>
    body.int32(0).int16(0).int64(100).int64(100).int64(0).int32(-1).bytes(records),
  );
  return new RequestBody().int32(0).int16(0).int32(0).raw(partition).done();
}

describe("a cluster", () => {
  test("that holds a client to a quota, or has nothing at hand, is asked again", async () => {
    // Throttled clients get an answer without topics; https://cwiki.apache.org/confluence/x/UZRnB
    const answers = [
      new RequestBody().int32(5).int16(0).int32(0).int32(0).done(),
      fetched(Buffer.alloc(0)),
      fetched(Buffer.from("records")),
    ];
    const { cluster } = await openFake((api, _, { port }) =>
      api === apis.metadata ? metadata(port) : answers.shift(),
    );
    expect(String((await cluster.fetch(0, 50, 1000)).records)).toBe("records");
  });

  test("is asked over one connection to each broker", async () => {
    const { broker, cluster } = await openFake((api, _, { port }) =>
      api === apis.metadata
        ? metadata(port, { partitions: 20 })
        : new RequestBody()
            .int32(0)
            .raw(partitionBytes((part) => part.int32(0).int16(0).int64(-1).int64(7).int32(0)))
            .done(),
    );
    const facts = await cluster.topic();
    await Promise.all([cluster.offsets("earliest", facts), cluster.offsets("stable", facts)]);
    expect(broker.opened()).toBe(2); // one for the address in the spec, one for the leader's
    cluster[Symbol.dispose]();
    await expect.poll(() => broker.open.size).toBe(0);
  });

  test("says in which epoch an offset was the last stable one", async () => {
    const { cluster } = await openFake((api, _, { port }) =>
      api === apis.metadata
        ? metadata(port, { epoch: 3 })
        : new RequestBody()
            .int32(0)
            .raw(partitionBytes((part) => part.int32(0).int16(0).int64(-1).int64(70).int32(4)))
            .done(),
    );
    const facts = await cluster.topic();
    expect((await cluster.offsets("stable", facts)).get(0)).toEqual({ offset: 70, epoch: 4 });
  });
});

describe("a connection", () => {
  test.each([
    ["of a negative length", Buffer.from("ffffff00", "hex")],
    ["without bytes", Buffer.alloc(4)],
    ["too short for a head", Buffer.from("0000000201", "hex").subarray(0, 5)],
    ["too long", Buffer.from("HTTP/1.1 400 Bad Request")],
    ["to another request", Buffer.from("0000000400000063", "hex")],
  ])("ends with an answer %s", async (_, answer) => {
    const broker = await fakeBroker(() => answer, { raw: true });
    cleanup.push(broker);
    const { signal } = new AbortController();
    const options = { host: "127.0.0.1", port: broker.port, tls: undefined, login: undefined, timeoutMs: 2000, signal };
    const connection = await openConnection(options);
    await expect(connection.call({ api: apis.fetch, version: 10 }, Buffer.alloc(0))).rejects.toThrow(/is it Kafka/);
    expect(connection.isOpen).toBe(false);
  });

  test.each([
    ["an answer", "00001000", undefined],
    ["the handshake", "1603034000", {}],
  ])("ends where the bytes of %s drip", async (_, head, tls) => {
    const dripping = createServer((socket) => {
      socket.on("error", () => undefined);
      socket.write(Buffer.from(head, "hex"));
      const timer = setInterval(() => socket.write("x"), 20);
      socket.on("close", () => {
        clearInterval(timer);
      });
    });
    await new Promise<void>((done) => dripping.listen(0, "127.0.0.1", done));
    cleanup.push(dripping);
    const { port } = dripping.address() as { port: number };
    const { signal } = new AbortController();
    const opening = openConnection({ host: "127.0.0.1", port, tls, login: undefined, timeoutMs: 500, signal });
    const calling = opening.then((connection) => connection.call({ api: apis.fetch, version: 10 }, Buffer.alloc(0)));
    await expect(calling).rejects.toMatchObject({ code: "ETIMEDOUT" });
  });

  test("ends while it is made when the run is stopped", async () => {
    const broker = await fakeBroker(() => undefined);
    cleanup.push(broker);
    const stop = new AbortController();
    const options = { host: "127.0.0.1", port: broker.port, tls: {}, login: undefined, timeoutMs: 60_000 };
    const opening = openConnection({ ...options, signal: stop.signal });
    await expect.poll(broker.opened).toBe(1);
    stop.abort();
    await expect(opening).rejects.toThrow(/abort/);
  });

  test("refuses numbers that do not end", async () => {
    const broker = new RequestBody().int32(0).int8(2).int32(1).int8(1).int32(9092).int8(0);
    const endless = broker.int8(2).int8(0).raw(Buffer.alloc(200, 0x80)).int8(0).done(); // the length of a tag
    const { cluster } = await openFake(() => endless);
    await expect(cluster.topic()).rejects.toMatchObject({ code: "NETWORK" });
  });
});
