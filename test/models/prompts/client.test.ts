import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, test } from "vitest";
import { openPromptClient } from "#src/models/prompts/client.js";
import type { AskedPrompt } from "#src/models/prompts/task.js";
import type { ModelServer } from "#src/models/served/server.js";
import { JobError } from "#src/base/errors.js";
import { modelServerAt, retryClock } from "../../support/asked-places.js";
import { closeSync, openSync } from "node:fs";
import { join } from "node:path";
import { writeAllSync } from "#src/models/prompts/kept-answers.js";
import { scratchFolder } from "../../support/job.js";
import { mayMount, smallDisk } from "../../support/mounts.js";

const answer = '{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]}';

/** A server of chat completions that fails on all prompts but `control`. */
async function worldOf(): Promise<AsyncDisposable & { readonly about: ModelServer }> {
  const server = createServer(async (request, response) => {
    const [body] = (await once(request, "data")) as [Buffer];
    const isControl = body.toString() === "control";
    response.writeHead(isControl ? 200 : 500).end(isControl ? answer : "");
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");

  const about = modelServerAt(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, retryClock(), 1);
  return {
    about,
    async [Symbol.asyncDispose]() {
      about.connections[Symbol.dispose]();
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

test.skipIf(!mayMount)("bytes that fill the disk are an error, and not written in part", async () => {
  await using scratch = await scratchFolder();
  await using disk = await smallDisk(join(scratch.path, "disk"), "size=16k");
  const file = openSync(join(disk.path, "answers"), "w");
  try {
    expect(() => writeAllSync(file, new Uint8Array(100_000), 0)).toThrow("ENOSPC");
  } finally {
    closeSync(file);
  }
});
