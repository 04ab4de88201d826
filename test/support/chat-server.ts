import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

export interface ChatRequest {
  readonly path: string;
  /** Counts requests for answers from 1. */
  readonly number: number;
  readonly headers: IncomingMessage["headers"];
  readonly body: Readonly<Record<string, unknown>>;
  /** The text of the last message, or the text to be embedded. */
  readonly text: string;
}

/** What the server answers; `content`: the text of an answer with status 200. */
export type ChatReply =
  | {
      readonly content: string | null;
      readonly finish?: string;
      readonly model?: string;
      readonly refusal?: string;
      readonly cached?: number;
    }
  | { readonly status: number; readonly headers?: Readonly<Record<string, string>>; readonly body: object }
  | { readonly raw: string | Uint8Array }
  | { readonly vector: readonly number[] }
  /** The connection is cut, after an answer that was paid for. */
  | { readonly cut: true };

/** A server of language models for tests, with books of what it answered. */
export interface ChatServer extends AsyncDisposable {
  readonly url: string;
  readonly requests: readonly ChatRequest[];
  /** Tokens of the answers that were sent. */
  readonly books: { readonly answers: number; readonly prompt: number; readonly completion: number };
  readonly mostInFlight: number;
  reply: (request: ChatRequest) => ChatReply | Promise<ChatReply>;
}

/** Tokens of a prompt and of an answer, as this server counts them: a token has four characters. */
export function tokensIn(text: string): number {
  return Math.ceil(text.length / 4);
}

export async function serveChat(reply: ChatServer["reply"] = ({ text }) => ({ content: text })): Promise<ChatServer> {
  const requests: ChatRequest[] = [];
  const books = { answers: 0, prompt: 0, completion: 0 };
  let [inFlight, mostInFlight] = [0, 0];
  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const body = JSON.parse(await textOf(request)) as Record<string, unknown>;
    const messages = body["messages"] as { content: string }[] | undefined;
    const text = messages?.at(-1)?.content ?? (body["input"] as string);
    const asked = { path: request.url ?? "", number: requests.length + 1, headers: request.headers, body, text };
    requests.push(asked);
    const found = await server.reply(asked);
    if ("status" in found) {
      send(response, found.status, found.body, found.headers);
      return;
    }
    if ("raw" in found) {
      response.end(found.raw);
      return;
    }
    if ("cut" in found) {
      request.socket.destroy();
      return;
    }
    const prompt = tokensIn(JSON.stringify(messages ?? body["input"]));
    const completion = "vector" in found ? 0 : tokensIn(found.content ?? "");
    books.answers += 1;
    books.prompt += prompt;
    books.completion += completion;
    const usage = { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion };
    if ("vector" in found) {
      send(response, 200, { model: body["model"], data: [{ index: 0, embedding: found.vector }], usage });
      return;
    }
    const { content, finish = "stop", model = body["model"], refusal, cached = 0 } = found;
    const message = { role: "assistant", content, ...(refusal === undefined ? {} : { refusal }) };
    send(response, 200, {
      id: "chatcmpl-1",
      object: "chat.completion",
      model,
      choices: [{ index: 0, message, finish_reason: finish }],
      usage: { ...usage, prompt_tokens_details: { cached_tokens: cached } },
    });
  };
  const http = createServer((request, response) => {
    if (request.url === "/v1/models") {
      send(response, 200, { object: "list", data: [{ id: "m" }] });
      return;
    }
    inFlight += 1;
    mostInFlight = Math.max(mostInFlight, inFlight);
    response.once("close", () => (inFlight -= 1));
    answer(request, response).catch((error: unknown) => send(response, 500, { error: { message: String(error) } }));
  });
  await new Promise<void>((resolve) => {
    http.listen(0, "127.0.0.1", resolve);
  });
  const server: ChatServer = {
    url: `http://127.0.0.1:${(http.address() as AddressInfo).port}`,
    requests,
    books,
    get mostInFlight() {
      return mostInFlight;
    },
    reply,
    async [Symbol.asyncDispose]() {
      http.closeAllConnections();
      await new Promise((resolve) => {
        http.close(resolve);
      });
    },
  };
  return server;
}

function send(
  response: ServerResponse,
  status: number,
  body: object,
  headers: Readonly<Record<string, string>> = {},
): void {
  response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(body));
}

async function textOf(request: IncomingMessage): Promise<string> {
  const pieces: Buffer[] = [];
  for await (const piece of request) {
    pieces.push(piece as Buffer);
  }
  return Buffer.concat(pieces).toString("utf8");
}
