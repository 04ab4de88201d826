import type { IncomingMessage, ServerResponse } from "node:http";
import { readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { downloadTo, type HttpEndpoint } from "#src/base/http/http.js";
import { etagOf, type FileServer, serveFiles } from "../../support/hub.js";
import { scratchFolder } from "../../support/job.js";
import { until } from "../../support/waiting.js";
import { placeWith, retriesAtOnce } from "../../support/http-place.js";

const body = Buffer.from(Array.from({ length: 1000 }, (_, index) => index % 251));
const half = 500;

const place = placeWith({ doing: "fetching a model", retry: { ...retriesAtOnce, maxSeconds: 60, random: () => 0 } });

interface Download extends AsyncDisposable {
  readonly server: FileServer;
  /** Bytes that are written to the file so far. */
  readonly received: () => Promise<number>;
  /** Returns the file, whose size and ETag must be those of `body`. */
  fetch(url: string, more?: Partial<HttpEndpoint>): Promise<Buffer>;
}

async function downloadFrom(server: FileServer): Promise<Download> {
  const scratch = await scratchFolder();
  const path = join(scratch.path, "model.onnx");
  return {
    server,
    received: async () => (await stat(path)).size,
    async fetch(url, more) {
      const { sizeBytes, etag } = await downloadTo(url, { ...place, ...more }, path);
      expect([sizeBytes, etag]).toEqual([body.length, etagOf(body)]);
      return await readFile(path);
    },
    [Symbol.asyncDispose]: () => scratch[Symbol.asyncDispose](),
  };
}

/** Has the first answer break off when its first half is received; `rest` sees the next requests, and may answer. */
function breakOff(
  { server, received }: Download,
  rest: (request: IncomingMessage, response: ServerResponse) => boolean,
): void {
  server.fail = (_request, response) => {
    server.fail = rest;
    response.writeHead(200, { etag: etagOf(body), "content-length": body.length });
    response.write(body.subarray(0, half));
    void until(async () => (await received()) === half).then(() => response.destroy());
    return true;
  };
}

test("a download that breaks off asks for the rest of the file, if the file is still the same", async () => {
  await using server = await serveFiles({ "net.onnx": body });
  await using download = await downloadFrom(server);
  const asked: unknown[] = [];
  breakOff(download, ({ headers }) => {
    asked.push([headers.range, headers["if-range"]]);
    return false;
  });
  expect(await download.fetch(`${server.url}/net.onnx`)).toEqual(body);
  expect(asked).toEqual([[`bytes=${half}-`, etagOf(body)]]);
});

test("a download that breaks off begins again if the server sends another part than it was asked for", async () => {
  await using server = await serveFiles({ "net.onnx": body });
  await using download = await downloadFrom(server);
  breakOff(download, (_request, response) => {
    const part = { "content-length": body.length, "content-range": `bytes 0-${body.length - 1}/${body.length}` };
    response.writeHead(206, { etag: etagOf(body), ...part }).end(body);
    return true;
  });
  expect(await download.fetch(`${server.url}/net.onnx`)).toEqual(body);
});

test.each([
  { what: "only a part of the rest", sent: [half, half + 100] },
  { what: "a part that begins after the rest", sent: [half + 100, body.length] },
  { what: "a part that it does not name", sent: undefined },
])("a download that breaks off is whole in the end if the server sends $what first", async ({ sent }) => {
  await using server = await serveFiles({ "net.onnx": body });
  await using download = await downloadFrom(server);
  breakOff(download, (_request, response) => {
    server.fail = undefined;
    const [start = half, end = body.length] = sent ?? [];
    const range = sent === undefined ? {} : { "content-range": `bytes ${start}-${end - 1}/${body.length}` };
    response.writeHead(206, { etag: etagOf(body), "content-length": end - start, ...range });
    response.end(body.subarray(start, end));
    return true;
  });
  expect(await download.fetch(`${server.url}/net.onnx`)).toEqual(body);
});

test("a download that breaks off at the end of a file whose size was not known begins again", async () => {
  await using server = await serveFiles({ "net.onnx": body });
  await using download = await downloadFrom(server);
  server.fail = (_request, response) => {
    server.fail = ({ headers }, refusal) => {
      const isRest = headers.range !== undefined;
      if (isRest) {
        refusal.writeHead(416).end();
      }
      return isRest;
    };
    response.writeHead(200, { etag: etagOf(body) }).write(body); // in chunks
    void until(async () => (await download.received()) === body.length).then(() => response.destroy());
    return true;
  };
  expect(await download.fetch(`${server.url}/net.onnx`)).toEqual(body);
});

test("a token is sent to the origin that it is for, and not to another one that it redirects to", async () => {
  await using other = await serveFiles({ "net.onnx": body });
  await using server = await serveFiles();
  await using download = await downloadFrom(server);
  const seen: unknown[] = [];
  server.fail = ({ headers, url }, response) => {
    seen.push(["own", headers.authorization]);
    response.writeHead(302, { location: url === "/first" ? "/second" : `${other.url}/net.onnx` }).end();
    return true;
  };
  other.fail = ({ headers }) => {
    seen.push(["other", headers.authorization]);
    return false;
  };
  expect(await download.fetch(`${server.url}/first`, { headers: { authorization: "Bearer secret" } })).toEqual(body);
  expect(seen).toEqual([
    ["own", "Bearer secret"],
    ["own", "Bearer secret"],
    ["other", undefined],
  ]);
});
