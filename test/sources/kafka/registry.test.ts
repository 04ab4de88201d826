import { createServer } from "node:http";
import { expect, test } from "vitest";
import { avroName, openAvro } from "#src/sources/lake/avro.js";
import { openRegistry } from "#src/sources/kafka/registry.js";
import { retriesAtOnce } from "../../support/http-place.js";

async function read(schema: string, names: readonly string[], value: readonly number[], others = 0): Promise<string> {
  const server = createServer((_, response) => void response.end(JSON.stringify({ schema })));
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  try {
    const values = openRegistry({
      url: `http://127.0.0.1:${(server.address() as { port: number }).port}`,
      names,
      openAvro,
      avroName,
      retry: retriesAtOnce,
      signal: new AbortController().signal,
      findProxy: () => undefined,
    });
    await values.load(1);
    for (let id = 2; id <= others + 1; id += 1) {
      await values.load(id);
    }
    return values.json(Buffer.from([0, 0, 0, 0, 1, ...value])).toString();
  } finally {
    server.closeAllConnections();
    await new Promise((done) => server.close(done));
  }
}

test("fields have names in letters of any language, as some writers of Avro make them", async () => {
  const schema = { type: "record", name: "R", fields: [{ name: "größe", type: "int" }] };
  expect(await read(JSON.stringify(schema), ["größe"], [10])).toBe('{"größe":5}');
});

test("what is wrong with a schema is told in few words: each row of it has them", async () => {
  const schema = { type: "record", name: "R", fields: [{ name: "a", type: `Missing${"x".repeat(10_000)}` }] };
  const text = await read(JSON.stringify(schema), ["a"], [0]);
  expect(text).toMatch(/^its schema 1 cannot be used: .*Missingx/);
  expect(text.length).toBeLessThanOrEqual(200);
});

test("of many schemas, those that were loaded first are asked for again", async () => {
  const schema = JSON.stringify({ type: "record", name: "R", fields: [{ name: "a", type: "int" }] });
  expect(await read(schema, ["a"], [10], 255)).toBe('{"a":5}');
  await expect(read(schema, ["a"], [10], 256)).rejects.toThrow("schema 1 is not loaded yet");
});
