import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, test } from "vitest";
import { openPromptClient } from "#src/models/prompts/client.js";
import type { AskedPrompt } from "#src/models/prompts/task.js";
import { type ModelServer, placeAt } from "#src/models/served/server.js";
import { openConnectionPool } from "#src/base/http/connections.js";
import { JobError } from "#src/base/errors.js";

const answer = '{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]}';

/** A server of chat completions that fails on all prompts but `control`. */
async function worldOf(): Promise<AsyncDisposable & { readonly about: ModelServer; readonly warnings: string[] }> {
  const server = createServer(async (request, response) => {
    const [body] = (await once(request, "data")) as [Buffer];
    const isControl = body.toString() === "control";
    response.writeHead(isControl ? 200 : 500).end(isControl ? answer : "");
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");

  const connections = openConnectionPool(60_000);
  const warnings: string[] = [];
  let clockMs = 0;
  const about: ModelServer = {
    ...placeAt(`http://127.0.0.1:${(server.address() as AddressInfo).port}`),
    model: "m",
    headers: {},
    timeoutMs: 10_000,
    most: 1,
    retry: {
      maxSeconds: 600,
      nowMs: () => clockMs,
      random: () => 0.5,
      sleep(ms) {
        clockMs += ms;
        return Promise.resolve();
      },
      warn: (message) => void warnings.push(message),
      warnedMs: new Map(),
    },
    signal: new AbortController().signal,
    findProxy: () => undefined,
    connections,
    tls: {},
  };
  return {
    about,
    warnings,
    async [Symbol.asyncDispose]() {
      connections[Symbol.dispose]();
      server.close();
      await once(server, "close");
    },
  };
}

const asked = (text: string): AskedPrompt => ({ body: Buffer.from(text), sha256: text });

test("an answer of a control request that cannot be counted ends the row with that error, and is not lost as well", async () => {
  await using world = await worldOf();
  const full = new JobError("DISK", "holding answers in a temporary file: ENOSPC");
  const lost: string[] = [];
  const client = openPromptClient("chat", [world.about], () => ({
    asked: asked("control"),
    onLost: () => void lost.push("control"),
    answered() {
      throw full;
    },
  }));

  const row = client.ask({
    asked: asked("row"),
    form: { tokensKey: "max_tokens", isStructured: false },
    ready: () => Promise.resolve(),
    onLost: () => void lost.push("row"),
    tokens: 1,
  });

  await expect(row).rejects.toBe(full);
  expect(lost).toEqual([]);
});
