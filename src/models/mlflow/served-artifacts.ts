import { posix } from "node:path";
import { downloadTo, readJson, readText } from "../../net/http.js";
import { type HttpEndpoint } from "../../net/http-endpoint.js";
import { isRecord } from "../../util/checks.js";
import { JobError } from "../../util/errors.js";
import type { Artifacts } from "../remote.js";

export interface ProxiedOptions {
  /** The server's URL, without a slash at its end. */
  readonly url: string;
  readonly place: HttpEndpoint;
  /** The path of the folder, below the root of the server's store. */
  readonly root: string;
}

/** Opens a folder of the tracking server's own store: `mlflow-artifacts:/…`. */
export function proxiedArtifacts({ url, place, root }: ProxiedOptions): Artifacts {
  const base = `${url}/api/2.0/mlflow-artifacts/artifacts`;
  const urlOf = (path: string): string => `${base}/${`${root}/${path}`.split("/").map(encodeURIComponent).join("/")}`;
  const folders = new Map<string, Promise<ReadonlyMap<string, number>>>();
  /**
   * Lists the sizes of a folder's files by name. Without a listing, a missing file may look like a fault of the server.
   */
  const sizesIn = async (folder: string): Promise<ReadonlyMap<string, number>> => {
    const asked = new URLSearchParams({ path: posix.join(root, folder) }).toString();
    const found = folders.get(folder) ?? readJson(`${base}?${asked}`, place).then(sizesOf);
    folders.set(folder, found);
    return await found;
  };
  const sizeOf = async (path: string): Promise<number | undefined> =>
    (await sizesIn(posix.dirname(path))).get(posix.basename(path));
  const require = async (path: string): Promise<number> => {
    const size = await sizeOf(path);
    if (size === undefined) {
      throw new JobError("FILE_MISSING", `${place.doing}: the registry has no file ${root}/${path}`, {
        hint: "its files were removed, or were never uploaded: log the model again",
      });
    }
    return size;
  };
  return {
    place: `${url} ${root}`,
    // The files of a version are never changed, so the size identifies a file.
    stateOf: async (path) => (await sizeOf(path))?.toString(),
    async readText(path) {
      await require(path);
      return await readText(urlOf(path), place);
    },
    async fetch(path, to) {
      const expected = await require(path);
      const { sizeBytes } = await downloadTo(urlOf(path), place, to);
      if (sizeBytes !== expected) {
        const found = `${path} has ${sizeBytes} bytes, but the registry lists ${expected}`;
        throw new JobError("NETWORK", `${place.doing}: ${found}`, { hint: "run the same command again" });
      }
      return String(expected);
    },
    [Symbol.dispose]() {},
  };
}

function sizesOf(answer: unknown): ReadonlyMap<string, number> {
  const files = isRecord(answer) && Array.isArray(answer["files"]) ? answer["files"] : [];
  return new Map(
    files
      .filter(isRecord)
      .flatMap(({ path, is_dir: isFolder, file_size: size }): [string, number][] =>
        typeof path === "string" && isFolder !== true ? [[posix.basename(path), Number(size)]] : [],
      ),
  );
}

/** Opens a folder whose files the server only serves one by one, as its web pages do. */
export function shownArtifacts(urlOf: (path: string) => string, place: HttpEndpoint): Artifacts {
  return {
    place: urlOf(""),
    stateOf: () => Promise.resolve("written once"),
    readText: async (path) => await readText(urlOf(path), place),
    async fetch(path, to) {
      await downloadTo(urlOf(path), place, to);
      return "written once";
    },
    [Symbol.dispose]() {},
  };
}
