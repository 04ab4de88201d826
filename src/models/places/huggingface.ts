import { readFile } from "node:fs/promises";
import { homedir } from "node:os";
import { join, normalize } from "node:path";
import { type HttpAnswer, type HttpEndpoint, downloadTo, headOf, readJson } from "../../base/http/http.js";
import { type HubUri, parseHubUri } from "../../job/jobfile/uri.js";
import { isRecord } from "../../base/guards.js";
import { JobError } from "../../base/errors.js";
import { digestOfFile } from "../../base/sha256.js";
import { fetchedModels, type RemoteModel, type RemoteOptions } from "./cache.js";
import type { ModelSource } from "./place.js";

interface HubModelOptions extends RemoteOptions {
  /** The Hub's URL, without a slash at its end: HF_ENDPOINT. */
  readonly endpoint: string;
  /** HF_TOKEN; undefined: only public models are found. */
  readonly token: string | undefined;
}

/**
 * Opens the source of models on the Hugging Face Hub, `hf://org/repo[@revision]/path/model.onnx`. A revision is resolved
 * to its commit, and all files are fetched by that commit. The protocol is that of huggingface_hub 2.4.
 */
export function hubModels(options: HubModelOptions): ModelSource {
  const { cache, retry, signal, findProxy, token } = options;
  return fetchedModels(cache, async (uri, pinned) => {
    const named = parseHubUri(uri);
    const hub = { ...named, revision: pinned?.version ?? named.revision };
    const doing = `loading ${cache.noun} ${uri}`;
    const place: HttpEndpoint = {
      doing,
      retry,
      signal,
      findProxy,
      headers: token === undefined ? undefined : { authorization: `Bearer ${token}` },
      hint: "when the Hub is reachable again, run the same command again",
      refused: (answer) => refused(answer, doing, hub, token !== undefined),
    };
    const commit = pinned?.version ?? (await commitOf(options, hub, place));
    const urlOf = (location?: string): string => fileUrl(options, { ...hub, revision: commit }, location);
    const stateAt = async (location?: string): Promise<string | undefined> =>
      stateOf(await headOf(urlOf(location), place, { crossOrigin: false }));
    const remote: RemoteModel = {
      place: `${options.endpoint} ${commit}`,
      stateOf: stateAt,
      async fetch(path, location) {
        const state = await stateAt(location);
        await downloadTo(urlOf(location), place, path);
        await refuseOther(path, state, `${doing}: ${location ?? hub.path}`);
        return state ?? "";
      },
    };
    return { remote, version: commit };
  });
}

/** Large files redirect to a content network, which has an ETag of its own: the Hub's is on the redirect. */
function stateOf({ headers }: HttpAnswer): string | undefined {
  const etag = headers.get("x-linked-etag") ?? headers.get("etag");
  return etag?.replace(/^W\//, "").replaceAll('"', "");
}

async function commitOf(
  { endpoint }: HubModelOptions,
  { repo, revision }: HubUri,
  place: HttpEndpoint,
): Promise<string> {
  const answer = await readJson(
    `${endpoint}/api/models/${repo}/revision/${encodeURIComponent(revision ?? "main")}`,
    place,
  );
  const commit = isRecord(answer) ? answer["sha"] : undefined;
  if (typeof commit !== "string" || !/^[0-9a-f]{40}$/.test(commit)) {
    throw new JobError("NETWORK", `${place.doing}: ${endpoint} does not answer as the Hugging Face Hub does`, {
      hint: "HF_ENDPOINT names the Hub, or a mirror of it",
    });
  }
  return commit;
}

function fileUrl({ endpoint }: HubModelOptions, { repo, revision, path }: HubUri, location?: string): string {
  const folder = path.slice(0, path.lastIndexOf("/") + 1);
  const file = location === undefined ? path : `${folder}${normalize(location)}`;
  const escaped = file.split("/").map(encodeURIComponent).join("/");
  return `${endpoint}/${repo}/resolve/${encodeURIComponent(revision ?? "main")}/${escaped}`;
}

/** Large files have their SHA-256 as ETag. */
async function refuseOther(path: string, state: string | undefined, what: string): Promise<void> {
  const actual = state !== undefined && /^[0-9a-f]{64}$/.test(state) ? (await digestOfFile(path)).sha256 : state;
  if (actual !== state) {
    throw new JobError("NETWORK", `${what} came with SHA-256 ${actual}, the Hub has ${state}`, {
      hint: "it was damaged on the way: run the same command again",
    });
  }
}

/** `X-Error-Code` tells what a status leaves open. */
function refused({ status, headers }: HttpAnswer, doing: string, hub: HubUri, hasToken: boolean): JobError {
  const { repo, revision = "main", path } = hub;
  const code = headers.get("x-error-code");
  const said = headers.get("x-error-message") ?? "";
  if (code === "GatedRepo") {
    return new JobError("PERMISSION", `${doing}: the repository ${repo} is gated`, {
      hint: hasToken
        ? "accept its conditions on its page, with the account of HF_TOKEN"
        : "accept its conditions on its page, and set HF_TOKEN to a token of that account",
    });
  }
  if (code === "RevisionNotFound") {
    return new JobError("FILE_MISSING", `${doing}: ${repo} has no revision ${revision}`, {
      hint: "a revision is a branch, a tag or a commit",
    });
  }
  if (code === "EntryNotFound") {
    return new JobError("FILE_MISSING", `${doing}: ${repo} has no file ${path} at revision ${revision}`, {
      hint: "write hf://org/repo/path/model.onnx, which names a file; external data is in the same folder",
    });
  }
  if (/invalid credentials/i.test(said)) {
    return new JobError("PERMISSION", `${doing}: the Hub does not know the token`, {
      hint: "HF_TOKEN must be a valid token; without one, public models are read",
    });
  }
  if ([401, 403, 404].includes(status)) {
    return new JobError("PERMISSION", `${doing}: there is no repository ${repo}, or it is private`, {
      hint: hasToken ? "the account of HF_TOKEN may not see it" : "for a private repository, set HF_TOKEN",
    });
  }
  return new JobError(
    "FILE_MISSING",
    `${doing}: the Hub answered with HTTP ${status}${said === "" ? "" : `: ${said}`}`,
  );
}

type Environment = Readonly<Record<string, string | undefined>>;

/**
 * Reads where the Hugging Face Hub is, and the token, as Python's huggingface_hub does.
 * @throws JobError USAGE for an endpoint that is not a URL, or a token that cannot be sent
 */
export async function hubSettings(env: Environment): Promise<Pick<HubModelOptions, "endpoint" | "token">> {
  return { endpoint: endpointIn(env), token: await tokenIn(env) };
}

function endpointIn({ HF_ENDPOINT: named = "" }: Environment): string {
  const endpoint = named.trim() === "" ? "https://huggingface.co" : named.trim().replace(/\/+$/, "");
  if (!/^https?:\/\//i.test(endpoint) || !URL.canParse(endpoint)) {
    throw new JobError("USAGE", `reading HF_ENDPOINT: ${endpoint} is not a URL`, {
      hint: "write the Hub's URL with https://, or unset the variable for huggingface.co",
    });
  }
  return endpoint;
}

async function tokenIn(env: Environment): Promise<string | undefined> {
  const named = (env["HF_TOKEN"] ?? env["HUGGING_FACE_HUB_TOKEN"])?.trim() ?? "";
  const home = env["HF_HOME"] ?? join(env["XDG_CACHE_HOME"] ?? join(homedir(), ".cache"), "huggingface");
  const path = env["HF_TOKEN_PATH"] ?? join(home, "token");
  const token = named === "" ? (await readFile(path, "utf8").catch(() => "")).trim() : named; // public models need none
  if (!/^[\x21-\x7e]*$/.test(token)) {
    throw new JobError(
      "USAGE",
      `reading the token of the Hugging Face Hub: ${named === "" ? path : "HF_TOKEN"} is not a token`,
      { hint: "a token is one word of ASCII characters, as hf auth login stores it" },
    );
  }
  return token === "" ? undefined : token;
}
