import { downloadTo, fileOf, headOf } from "../net/http.js";
import type { HttpAnswer, HttpPlace } from "../net/http-place.js";
import { JobError } from "../util/errors.js";
import type { RetryTools } from "../util/retry.js";
import type { ModelCache } from "./cache.js";
import type { ModelSource } from "./port.js";
import { cachedOrFetched } from "./remote.js";

export interface HttpModelOptions {
  readonly cache: ModelCache;
  readonly retry: RetryTools;
  readonly signal: AbortSignal;
}

/** Opens the source of models at `https:` and `http:` URLs. External data lies beside the model. */
export function httpModels({ cache, retry, signal }: HttpModelOptions): ModelSource {
  return {
    async resolve(uri, sha256) {
      const pinned = sha256 === undefined ? undefined : await cache.find(sha256, uri);
      if (pinned !== undefined) {
        return { file: pinned };
      }
      const doing = `loading model ${uri}`;
      const hint = "when the server is reachable again, run the same command again";
      const place: HttpPlace = { doing, retry, signal, hint, refused: (answer) => refused(doing, answer) };
      const urlOf = (location?: string): string =>
        location === undefined ? uri : new URL(location.split("/").map(encodeURIComponent).join("/"), uri).href;
      const file = await cachedOrFetched(cache, {
        name: uri,
        place: "http",
        stateOf: async (location) => fileOf(await headOf(urlOf(location), place)).etag,
        fetch: async (path, location) => (await downloadTo(urlOf(location), place, path)).etag ?? "",
      });
      return { file };
    },
    [Symbol.dispose]() {},
  };
}

function refused(doing: string, { status, place }: HttpAnswer): JobError {
  if (status === 404 || status === 410) {
    return new JobError("FILE_MISSING", `${doing}: the server has no ${place} (HTTP ${status})`, {
      hint: "model.path names one ONNX file; external data lies beside it, by the names that the model gives",
    });
  }
  if (status === 401 || status === 403) {
    return new JobError("PERMISSION", `${doing}: the server refuses ${place} (HTTP ${status})`, {
      hint: "the URL must be readable without a login: store the model in S3, a registry or a file otherwise",
    });
  }
  return new JobError("FILE_MISSING", `${doing}: the server answered ${place} with HTTP ${status}`, {
    hint: "check the URL with curl -I",
  });
}
