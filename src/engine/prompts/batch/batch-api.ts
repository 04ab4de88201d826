import { randomUUID } from "node:crypto";
import { BrokenTransfer } from "../../../net/http-failures.js";
import { readJson, readLines } from "../../../net/http.js";
import type { HttpEndpoint } from "../../../net/http-endpoint.js";
import { assertNever, JobError } from "../../../util/errors.js";
import { tryAgain } from "../../../util/retry.js";
import { encodedRequest, ServerFault } from "../../served/message.js";
import { judge } from "../../served/outcome.js";
import { type ModelServer, placeOf, refusalOf, serverText, urlAt } from "../../served/server.js";
import { post, type Received, usualAnswerBytes } from "../../served/transport.js";
import { promptRefusal } from "../refusals.js";
import { type Batch, batchOf, type Page, pageOf, type UploadedFile, uploadedFileOf } from "./batch-object.js";

/** The calls of the Batch API. Each is retried; all throw JobError NETWORK (75), PERMISSION, MODEL_INVALID (64), QUOTA (67). */
export interface BatchApi {
  /** All batches of the account. */
  batches(): Promise<readonly Batch[]>;
  batch(id: string): Promise<Batch>;
  /** The uploaded files of the account that batches may be made from; none where the server has no such list. */
  files(): Promise<readonly UploadedFile[]>;
  /** Uploads a file. Returns its id. */
  upload(name: string, pieces: readonly Uint8Array[]): Promise<string>;
  /**
   * Creates a batch.
   * @param find looks for the batch after an answer was lost: a batch that is created twice is paid for twice
   */
  create(request: NewBatch, find: () => Promise<Batch | undefined>): Promise<Batch>;
  /** Calls `take` with each line of a file, with some of them twice after a broken transfer. */
  lines(file: string, options: Parameters<typeof readLines>[2]): Promise<void>;
}

/** What a batch is created from. */
export interface NewBatch {
  readonly input_file_id: string;
  readonly endpoint: string;
  readonly completion_window: "24h";
  readonly metadata: Readonly<Record<string, string>>;
}

const batchesOfPage = 100;

export function openBatchApi(server: ModelServer): BatchApi {
  const at = (path: string): string => urlAt(server, path);
  const placed = (act: string): HttpEndpoint => batchPlace(server, `${act} of ${serverText(server)}`);
  return {
    batches: () => everyItem(placed("listing the batches"), at(`/batches?limit=${batchesOfPage}`), batchOf),
    async batch(id) {
      const place = placed(`asking for batch ${id}`);
      return requireItem(place, await readJson(at(`/batches/${encodeURIComponent(id)}`), place), batchOf);
    },
    async files() {
      const place = placed("listing the files");
      try {
        return await everyItem(place, at("/files?purpose=batch"), uploadedFileOf);
      } catch (error) {
        if (error instanceof JobError && error.code === "MODEL_INVALID") {
          return [];
        }
        throw error;
      }
    },
    async upload(name, pieces) {
      const place = placed("uploading a file of requests");
      const { contentType, body } = formOf(name, pieces);
      const encoded = encodedRequest(body, { "content-type": contentType });
      return (await postRetried(server, place, { url: at("/files"), encoded, read: uploadedFileOf })).id;
    },
    async create(request, find) {
      const place = placed("creating a batch");
      const encoded = encodedRequest([Buffer.from(JSON.stringify(request))], { "content-type": "application/json" });
      return await postRetried(server, place, { url: at("/batches"), encoded, read: batchOf, find });
    },
    lines: (file, options) =>
      readLines(at(`/files/${encodeURIComponent(file)}/content`), placed("reading a file of answers"), options),
  };
}

/** The server as a place; without a Batch API it is named as such. */
function batchPlace(server: ModelServer, doing: string): HttpEndpoint {
  const place = placeOf(server, doing);
  return { ...place, refused: (answer) => batchRefusal(server, doing, answer) };
}

const absent: ReadonlySet<number> = new Set([400, 404, 405, 501]);

function batchRefusal(
  server: ModelServer,
  doing: string,
  answer: { readonly status: number; readonly said: string },
): JobError {
  const error = refusalOf(server, doing, answer);
  return absent.has(answer.status)
    ? new JobError("MODEL_INVALID", error.message, {
        hint: "check that the server has /files and /batches, as OpenAI's Batch API; without them leave out model.server.transport",
      })
    : error;
}

/** Reads a list page by page. A server may repeat items, or a page. */
async function everyItem<T extends { readonly id: string }>(
  place: HttpEndpoint,
  url: string,
  read: (item: unknown) => T | undefined,
): Promise<T[]> {
  const found = new Map<string, T>();
  for (let after: string | undefined = ""; after !== undefined; ) {
    const page: Page<T> = pageOf(
      await readJson(after === "" ? url : `${url}&after=${encodeURIComponent(after)}`, place),
      read,
    );
    const before = found.size;
    for (const item of page.items) {
      found.set(item.id, item);
    }
    after = found.size === before ? undefined : page.after;
  }
  return [...found.values()];
}

function requireItem<T>({ doing }: HttpEndpoint, json: unknown, read: (json: unknown) => T | undefined): T {
  const item = read(json);
  if (item === undefined) {
    throw new JobError("MODEL_INVALID", `${doing}: the answer is not one of the Batch API`, {
      hint: "check that model.server.url is a server with OpenAI's Batch API",
    });
  }
  return item;
}

interface Posting<T> {
  readonly url: string;
  readonly encoded: ReturnType<typeof encodedRequest>;
  readonly read: (json: unknown) => T | undefined;
  /** Returns what the request makes, if an earlier try has made it. */
  readonly find?: () => Promise<T | undefined>;
}

/** Sends a request until it is answered or refused. */
async function postRetried<T>(
  server: ModelServer,
  place: HttpEndpoint,
  { url, encoded, read, find }: Posting<T>,
): Promise<T> {
  const rules = { judge: (error: unknown) => judge(place, error), code: "NETWORK", hint: place.hint } as const;
  return await tryAgain(place.doing, place.retry, rules, async (last) => {
    const made = last === undefined ? undefined : await find?.();
    if (made !== undefined) {
      return made;
    }
    const received = await post(server, url, encoded, { mayResend: false, mostBytes: usualAnswerBytes });
    return requireItem(place, await jsonOf(server, place, received), read);
  });
}

async function jsonOf(server: ModelServer, { doing, retry }: HttpEndpoint, received: Received): Promise<unknown> {
  const { status, headers } = received;
  const said = received.said();
  if (status >= 200 && status < 300) {
    try {
      return JSON.parse(said) as unknown;
    } catch {
      throw new BrokenTransfer("the answer is not JSON");
    }
  }
  const found = promptRefusal({ status, headers, said }, { isStructured: false, tokensKey: "max_tokens" });
  switch (found.kind) {
    case "quota":
      throw quotaError(doing, found.message);
    case "overloaded":
      await retry.sleep(Math.min(found.retryAfterMs, retry.maxSeconds * 1000));
      throw new BrokenTransfer(found.message);
    case "fault":
      throw new ServerFault(found.message);
    case "row":
    case "form":
    case "final":
      throw batchRefusal(server, doing, { status, said });
    default:
      return assertNever(found);
  }
}

/** The error for an account without money. */
export function quotaError(doing: string, found: string): JobError {
  return new JobError("QUOTA", `${doing}: ${found}`, {
    hint: "answers so far and committed rows are kept: top up the account and run the same command to go on",
  });
}

/** A form with a file: RFC 7578. */
function formOf(name: string, pieces: readonly Uint8Array[]): { contentType: string; body: readonly Uint8Array[] } {
  const boundary = `infer-batch-${randomUUID()}`;
  const part = (header: string): string => `--${boundary}\r\ncontent-disposition: form-data; ${header}\r\n`;
  const begin = `${part('name="purpose"')}\r\nbatch\r\n${part(`name="file"; filename="${name}"`)}content-type: application/jsonl\r\n\r\n`;
  return {
    contentType: `multipart/form-data; boundary=${boundary}`,
    body: [Buffer.from(begin), ...pieces, Buffer.from(`\r\n--${boundary}--\r\n`)],
  };
}
