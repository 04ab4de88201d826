import { MessageChannel, type MessagePort } from "node:worker_threads";
import { expect, onTestFinished, test, vi } from "vitest";
import { JobError } from "#src/base/errors.js";
import { openRpcClient, type RpcClient, type RpcHandlers, type RpcProtocol, serveRpc } from "#src/base/rpc.js";

interface Protocol extends RpcProtocol {
  calls: {
    /** The numbers below the one that is asked for, and their sum. */
    count: { request: number; item: number; result: number };
    bytes: { request: number; result: Uint8Array<ArrayBuffer> };
    fail: { request: string; result: undefined };
    wait: { request: undefined; result: string };
  };
  toServer: { hello: string };
  toClient: { welcome: string };
}

type Server = RpcHandlers<Protocol>;

/** Serves in this thread, over real ports. */
function connect(changes: Partial<Server["calls"]> = {}): {
  client: RpcClient<Protocol>;
  welcomes: string[];
  broken: string[];
  port: MessagePort;
} {
  const { port1, port2 } = new MessageChannel();
  const server = serveRpc<Protocol>(port2, {
    calls: {
      count: (limit, { send }) => {
        for (let number = 0; number < limit; number += 1) {
          send({ body: number });
        }
        return Promise.resolve({ body: (limit * (limit - 1)) / 2 });
      },
      bytes: (length) => {
        const bytes = new Uint8Array(length).fill(7);
        return Promise.resolve({ body: bytes, transfer: [bytes.buffer] });
      },
      fail: (message) =>
        Promise.reject(new JobError("DISK", message, { hint: "free some space", cause: new Error("ENOSPC") })),
      wait: (_request, { isCancelled, onCancel }) =>
        new Promise((resolve) => {
          onCancel(() => {
            resolve({ body: `cancelled: ${String(isCancelled())}` });
          });
        }),
      ...changes,
    },
    onNotice: {
      hello(name) {
        server.notify("welcome", { body: name });
      },
    },
  });
  const welcomes: string[] = [];
  const broken: string[] = [];
  const client = openRpcClient<Protocol>(port1, {
    doing: "counting",
    onNotice: {
      welcome(name) {
        welcomes.push(name);
      },
    },
    onBroken: ({ message }) => broken.push(message),
  });
  onTestFinished(() => {
    port1.close();
  });
  return { client, welcomes, broken, port: port2 };
}

test("a call is answered with its items in order, then with its result", async () => {
  const { client } = connect();
  const items: [call: string, item: number][] = [];

  const calls = [
    client.call("count", { body: 3 }, (item) => items.push(["first", item])),
    client.call("count", { body: 2 }, (item) => items.push(["second", item])),
  ];

  expect(client.pending).toBe(2);
  expect(await Promise.all(calls.map(({ result }) => result))).toEqual([3, 1]);
  expect(items.filter(([call]) => call === "first").map(([, item]) => item)).toEqual([0, 1, 2]);
  expect(items.filter(([call]) => call === "second").map(([, item]) => item)).toEqual([0, 1]);
  expect(client.pending).toBe(0);
});

test("a result's buffers are moved, not copied, where the server says so", async () => {
  const made: Uint8Array<ArrayBuffer>[] = [];
  const { client } = connect({
    bytes: (length) => {
      const bytes = new Uint8Array(length).fill(9);
      made.push(bytes);
      return Promise.resolve({ body: bytes, transfer: [bytes.buffer] });
    },
  });

  expect(await client.call("bytes", { body: 3 }).result).toEqual(Uint8Array.of(9, 9, 9));
  expect(made[0]?.length).toBe(0);
});

test("an error keeps its class, code, hint and cause on its way to the client", async () => {
  const { client } = connect();

  const error: unknown = await client
    .call("fail", { body: "writing out/a: no space" })
    .result.catch((cause: unknown) => cause);

  expect(error).toBeInstanceOf(JobError);
  expect(error).toMatchObject({ code: "DISK", message: "writing out/a: no space", hint: "free some space" });
  expect((error as JobError).cause).toMatchObject({ message: "ENOSPC" });
});

test("an error of the system keeps its errno, stack and cause on its way to the client", async () => {
  const thrown = Object.assign(new Error("ENOSPC: no space left", { cause: new Error("write") }), { code: "ENOSPC" });
  const { client } = connect({
    fail: () => {
      throw thrown; // not as a rejection
    },
  });

  const error: unknown = await client.call("fail", { body: "" }).result.catch((cause: unknown) => cause);

  expect(error).not.toBeInstanceOf(JobError);
  expect(error).toMatchObject({ message: thrown.message, code: "ENOSPC", stack: thrown.stack });
  expect((error as Error).cause).toMatchObject({ message: "write" });
});

test("a result that cannot be sent is an error of its call alone", async () => {
  const { client } = connect({ wait: () => Promise.resolve({ body: (() => "") as unknown as string }) });

  await expect(client.call("wait", { body: undefined }).result).rejects.toThrow("could not be cloned");
  expect(await client.call("count", { body: 2 }).result).toBe(1);
});

test("a call that is cancelled is settled when the server has stopped", async () => {
  const { client } = connect();
  const call = client.call("wait", { body: undefined });

  call.cancel();

  expect(await call.result).toBe("cancelled: true");
});

test("notices go both ways", async () => {
  const { client, welcomes } = connect();

  client.notify("hello", { body: "Ada" });

  await vi.waitFor(() => {
    expect(welcomes).toEqual(["Ada"]);
  });
});

test("calls under way, and later ones, are rejected once the other end is gone", async () => {
  const { client, broken, port } = connect();
  const call = client.call("wait", { body: undefined });

  port.close();

  await expect(call.result).rejects.toThrow("counting: the worker thread has ended");
  await expect(client.call("count", { body: 1 }).result).rejects.toThrow("counting: the worker thread has ended");
  expect({ pending: client.pending, broken }).toEqual({
    pending: 0,
    broken: ["counting: the worker thread has ended"],
  });
});
