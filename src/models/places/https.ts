import { downloadTo, fileOf, headOf, type HttpAnswer } from "../../base/http/http.js";
import { JobError } from "../../base/errors.js";
import { fetchedModels, type RemoteModel, type RemoteOptions } from "./cache.js";
import type { ModelSource } from "./place.js";

/** Opens the source of models at `https:` and `http:` URLs. External data is at the same place as the model. */
export function httpModels({ cache, retry, signal, findProxy }: RemoteOptions): ModelSource {
  return fetchedModels(cache, async (uri) => {
    const doing = `loading model ${uri}`;
    const hint = "when the server is reachable again, run the same command again";
    const place = { doing, retry, signal, findProxy, hint, refused: (answer: HttpAnswer) => refused(doing, answer) };
    const urlOf = (location?: string): string =>
      location === undefined ? uri : new URL(location.split("/").map(encodeURIComponent).join("/"), uri).href;
    const stateOf = async (location?: string): Promise<string | undefined> =>
      fileOf(await headOf(urlOf(location), place)).etag;

    const version = await stateOf();
    const remote: RemoteModel = {
      place: "http",
      stateOf: (location) => (location === undefined ? Promise.resolve(version) : stateOf(location)),
      fetch: async (path, location) => (await downloadTo(urlOf(location), place, path)).etag ?? "",
    };
    return { remote, version };
  });
}

function refused(doing: string, { status, place }: HttpAnswer): JobError {
  if (status === 404 || status === 410) {
    return new JobError("FILE_MISSING", `${doing}: the server has no ${place} (HTTP ${status})`, {
      hint: "set model.path to one ONNX file; external data is at the same place, under the names that the model uses",
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
