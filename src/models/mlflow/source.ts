import { posix } from "node:path";
import type { HttpEndpoint } from "../../net/http-endpoint.js";
import type { FindProxy } from "../../net/proxy.js";
import type { TlsSettings } from "../../net/request.js";
import { parseMlflowUri } from "../../spec/model-uri.js";
import { isObjectUri, objectFolder, objectUriProblem } from "../../spec/object-uri.js";
import { JobError } from "../../util/errors.js";
import type { RetryTools } from "../../util/retry.js";
import type { ModelCache } from "../cache.js";
import { refuseOutside } from "../model-file.js";
import type { ModelFile, ModelSource } from "../port.js";
import { type Artifacts, cachedOrFetched, findPinned } from "../remote.js";
import { parseMlModel } from "./mlmodel.js";
import { refusedBy } from "./refusals.js";
import { type LocatedModel, locate, type Registry } from "./registry.js";
import { notOnnxError } from "./remedies.js";
import { proxiedArtifacts, shownArtifacts } from "./served-artifacts.js";
import { sha256Of } from "../../util/sha256.js";

export interface MlflowServer {
  /** The tracking URI, without a slash at its end. */
  readonly url: string;
  /** The headers that log in. */
  readonly headers: Readonly<Record<string, string>>;
  readonly tls: TlsSettings;
}

export interface MlflowModelOptions {
  readonly cache: ModelCache;
  readonly retry: RetryTools;
  readonly signal: AbortSignal;
  readonly findProxy: FindProxy;
  /** Finds the server and the login. Called only when a request is needed. @throws JobError SPEC_INVALID */
  readonly server: () => Promise<MlflowServer>;
  /** Opens a folder of files in a store of objects. @param model the model as messages name it */
  readonly openStore: (uri: string, model: string) => Promise<Artifacts>;
}

/**
 * Opens the source of models of MLflow: `models:/name@alias`, `models:/name/version`, `models:/m-id`, `runs:/id/path`.
 * The protocol is the REST API of MLflow 2 and 3. GitLab's registry has the same API.
 */
export function mlflowModels(options: MlflowModelOptions): ModelSource {
  const { cache, retry, signal, findProxy } = options;
  return {
    async resolve(uri, pinned) {
      const found = await findPinned(cache, uri, pinned);
      if (found !== undefined) {
        return found;
      }
      const { url, headers, tls } = await options.server();
      const doing = `loading model ${uri}`;
      const place: HttpEndpoint = {
        doing,
        retry,
        signal,
        headers,
        tls,
        findProxy,
        hint: `when ${url} is reachable again, run the same command again`,
        refused: (answer) => refusedBy(answer, { doing, url, hasLogin: headers["authorization"] !== undefined }),
      };
      const located = await locate({ url, place }, parseMlflowUri(uri), pinned?.version);
      using artifacts = await openArtifacts(options, { registry: { url, place }, located, model: uri });
      const text = await artifacts.readText("MLmodel");
      const mlModel = parseMlModel(text);
      if (mlModel?.onnxFile === undefined) {
        throw notOnnxError({ doing, uri, flavors: mlModel?.flavors });
      }
      refuseOutside(uri, mlModel.onnxFile);
      // MLmodel contains an id and a time, which change when a model is logged again.
      const state = sha256Of(text);
      const file = await fetchOnnx(cache, { uri, artifacts, state, onnxFile: mlModel.onnxFile });
      return { file, version: located.version, signature: mlModel.signature, origin: located.origin };
    },
    [Symbol.dispose]() {},
  };
}

interface OnnxPlace {
  readonly uri: string;
  readonly artifacts: Artifacts;
  /** A value that changes when the model is replaced. */
  readonly state: string;
  readonly onnxFile: string;
}

async function fetchOnnx(cache: ModelCache, { uri, artifacts, state, onnxFile }: OnnxPlace): Promise<ModelFile> {
  const pathOf = (location?: string): string =>
    location === undefined ? posix.normalize(onnxFile) : posix.join(posix.dirname(onnxFile), location);
  return await cachedOrFetched(cache, {
    name: uri,
    place: `${artifacts.place} ${state}`,
    stateOf: (location) => artifacts.stateOf(pathOf(location)),
    fetch: (path, location) => artifacts.fetch(pathOf(location), path),
  });
}

interface ArtifactPlace {
  readonly registry: Registry;
  readonly located: LocatedModel;
  readonly model: string;
}

/** Opens the folder of a model's files at the URI that the server returned. */
async function openArtifacts(
  { openStore }: MlflowModelOptions,
  { registry: { url, place }, located: { artifactUri, servedAt }, model }: ArtifactPlace,
): Promise<Artifacts> {
  const [, host, root] = /^mlflow-artifacts:(?:\/\/([^/]*))?\/*(.*?)\/*$/.exec(artifactUri) ?? [];
  if (root !== undefined) {
    if (host !== undefined && host !== "" && host !== new URL(url).host) {
      throw unreadable(place, artifactUri);
    }
    return proxiedArtifacts({ url, place, root });
  }
  if (isObjectUri(artifactUri) && objectUriProblem(artifactUri) === undefined) {
    return await openStore(objectFolder(artifactUri).replace(/\/+$/, ""), model);
  }
  if (servedAt === undefined) {
    throw unreadable(place, artifactUri);
  }
  return shownArtifacts(servedAt, place);
}

function unreadable({ doing }: HttpEndpoint, artifactUri: string): JobError {
  return new JobError("MODEL_INVALID", `${doing}: its files are at ${artifactUri}, which this program cannot read`, {
    hint: "start the server with --serve-artifacts; or download the model (mlflow artifacts download) and name its file",
  });
}
