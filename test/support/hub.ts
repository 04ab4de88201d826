import { createHash } from "node:crypto";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

export interface FileServer extends AsyncDisposable {
  readonly url: string;
  /** Paths, without a slash at the beginning. A test may change them. */
  readonly files: Map<string, Uint8Array>;
  /** "GET /model.onnx bytes=8-", in the order they came. */
  readonly requests: string[];
  /** Asked for each request first: true if it has answered. */
  fail: ((request: IncomingMessage, response: ServerResponse) => boolean) | undefined;
}

export const etagOf = (body: Uint8Array): string => `"${createHash("sha256").update(body).digest("hex")}"`;

/** Serves files with ETags and ranges, as stores and content networks do. */
export async function serveFiles(files: Record<string, Uint8Array> = {}): Promise<FileServer> {
  const all = new Map(Object.entries(files));
  const requests: string[] = [];
  const server = createServer((request, response) => {
    requests.push(`${request.method} ${request.url} ${request.headers.range ?? ""}`.trim());
    if (served.fail?.(request, response) === true) {
      return;
    }
    const body = all.get(decodeURIComponent(new URL(request.url ?? "", "http://any").pathname.slice(1)));
    if (body === undefined) {
      response.writeHead(404).end("there is none");
      return;
    }
    send(request, response, body);
  });
  const served: FileServer = {
    url: await listen(server),
    files: all,
    requests,
    fail: undefined,
    [Symbol.asyncDispose]: () => close(server),
  };
  return served;
}

function send(request: IncomingMessage, response: ServerResponse, body: Uint8Array): void {
  const etag = etagOf(body);
  const [, from] = /^bytes=(\d+)-$/.exec(request.headers.range ?? "") ?? [];
  const start = from === undefined || request.headers["if-range"] !== etag ? 0 : Number(from);
  const rest = body.subarray(start);
  const part = start > 0 ? { "content-range": `bytes ${start}-${body.length - 1}/${body.length}` } : {};
  response.writeHead(start > 0 ? 206 : 200, { etag, "content-length": rest.length, ...part });
  response.end(request.method === "HEAD" ? undefined : rest);
}

/** A Hugging Face Hub in small, and the content network that it redirects to, which refuses tokens. */
export interface Hub extends AsyncDisposable {
  readonly url: string;
  /** Files of each revision of `org/model`, by path. */
  readonly revisions: Map<string, Map<string, Uint8Array>>;
  /** "GET /org/model/resolve/… token", in the order they came. */
  readonly requests: string[];
  /** The token that sees `org/private` and the files of `org/gated`. */
  readonly token: string;
  readonly network: FileServer;
}

/** The commit of a revision: a digest of its name and files. */
export function commitOf(files: ReadonlyMap<string, Uint8Array>): string {
  const digest = createHash("sha1");
  for (const [path, bytes] of files) {
    digest.update(path).update(bytes);
  }
  return digest.digest("hex");
}

/**
 * Serves `org/model`, `org/private` (with the token only) and `org/gated` (its files with the token only) as the Hub
 * does: revisions by name or commit, large files by a redirect to another origin, small ones by a relative one.
 */
export async function serveHub(main: Record<string, Uint8Array>): Promise<Hub> {
  const network = await serveFiles();
  network.fail = (request, response) => {
    if (request.headers.authorization === undefined) {
      return false;
    }
    response.writeHead(400).end("a token was sent to the content network");
    return true;
  };
  const revisions = new Map([["main", new Map(Object.entries(main))]]);
  const requests: string[] = [];
  const token = "hf_test";
  const server = createServer((request, response) => {
    requests.push(
      `${request.method} ${request.url} ${request.headers.authorization === undefined ? "" : "token"}`.trim(),
    );
    answer(request, response, { revisions, token, network });
  });
  const url = await listen(server);
  return {
    url,
    revisions,
    requests,
    token,
    network,
    async [Symbol.asyncDispose]() {
      await close(server);
      await network[Symbol.asyncDispose]();
    },
  };
}

function answer(
  request: IncomingMessage,
  response: ServerResponse,
  { revisions, token, network }: Pick<Hub, "revisions" | "token" | "network">,
): void {
  const fail = (status: number, code: string, message: string): void => {
    response.writeHead(status, { "x-error-code": code, "x-error-message": message }).end(message);
  };
  const { pathname } = new URL(request.url ?? "", "http://any");
  const given = request.headers.authorization;
  const [, repo = "", revision = "main", file] =
    /^\/(?:api\/models\/)?(org\/\w+)\/(?:resolve|revision)\/([^/]+)(?:\/(.+))?$/.exec(pathname) ?? [];
  if (given !== undefined && given !== `Bearer ${token}`) {
    fail(401, "", "Invalid credentials in Authorization header");
  } else if (
    !["org/model", "org/private", "org/gated"].includes(repo) ||
    (repo === "org/private" && given === undefined)
  ) {
    fail(given === undefined ? 401 : 404, "RepoNotFound", "Repository not found");
  } else {
    const files = filesOf(revisions, decodeURIComponent(revision));
    if (files === undefined) {
      fail(404, "RevisionNotFound", `Invalid rev id: ${revision}`);
    } else if (file === undefined) {
      response.end(JSON.stringify({ id: repo, sha: commitOf(files) }));
    } else if (repo === "org/gated" && given === undefined) {
      fail(401, "GatedRepo", "Access to model org/gated is restricted");
    } else {
      const path = decodeURIComponent(file);
      const body = files.get(path);
      if (body === undefined) {
        fail(404, "EntryNotFound", "Entry not found");
      } else {
        network.files.set(path, body);
        response
          .writeHead(302, {
            "x-linked-size": body.length,
            "x-linked-etag": etagOf(body),
            location: `${network.url}/${file}`,
          })
          .end();
      }
    }
  }
}

function filesOf(revisions: Hub["revisions"], name: string): ReadonlyMap<string, Uint8Array> | undefined {
  return revisions.get(name) ?? [...revisions.values()].find((files) => commitOf(files) === name);
}

async function listen(server: Server): Promise<string> {
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

async function close(server: Server): Promise<void> {
  server.closeAllConnections();
  await new Promise((done) => server.close(done));
}
