import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

export interface Call {
  readonly method: string;
  /** Path and query. */
  readonly path: string;
  readonly authorization?: string | undefined;
  readonly body: string;
}

/** A server that keeps what it is asked, and answers as it is told; undefined: never. */
export interface Listener extends AsyncDisposable {
  readonly url: string;
  readonly calls: readonly Call[];
}

export async function listen(statusOf: (call: Call) => number | undefined = () => 200): Promise<Listener> {
  const calls: Call[] = [];
  const server = createServer((request, response) => {
    let body = "";
    request.setEncoding("utf8").on("data", (text: string) => {
      body += text;
    });
    request.on("end", () => {
      const { authorization } = request.headers;
      const call = { method: request.method ?? "", path: request.url ?? "", authorization, body };
      calls.push(call);
      const status = statusOf(call);
      if (status !== undefined) {
        response.writeHead(status, status === 302 ? { location: "/elsewhere" } : {}).end();
      }
    });
  });
  await new Promise<void>((resolve) => {
    server.listen(0, "127.0.0.1", resolve);
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    calls,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => {
        server.close(resolve);
      });
    },
  };
}
