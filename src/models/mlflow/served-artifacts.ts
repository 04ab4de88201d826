import { posix } from "node:path";
import { downloadTo, readJson, readText } from "../../net/http.js";
import type { HttpPlace } from "../../net/http-place.js";
import { isRecord } from "../../util/checks.js";
import { JobError } from "../../util/errors.js";
import type { Artifacts } from "../remote.js";

export interface ProxiedOptions {
  /** The server's URL, without a slash at its end. */
  readonly url: string;
  readonly place: HttpPlace;
  /** The folder, below the root of what the server stores. */
  readonly root: string;
}

/** Opens a folder that the tracking server hands out for a store of its own: `mlflow-artifacts:/…`. */
export function proxiedArtifacts({ url, place, root }: ProxiedOptions): Artifacts {
  const base = `${url}/api/2.0/mlflow-artifacts/artifacts`;
  const urlOf = (path: string): string => `${base}/${`${root}/${path}`.split("/").map(encodeURIComponent).join("/")}`;
  const folders = new Map<string, Promise<ReadonlyMap<string, number>>>();
  /** Sizes by name. The server is asked, because behind it a missing file may look like a fault. */
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
    // Files of a version are written once.
    stateOf: async (path) => (await sizeOf(path))?.toString(),
    async readText(path) {
      await require(path);
      return await readText(urlOf(path), place);
    },
    async fetch(path, to) {
      const expected = await require(path);
      const { sizeBytes } = await downloadTo(urlOf(path), place, to);
      if (sizeBytes !== expected) {
        const found = `${path} came with ${sizeBytes} bytes, the registry says ${expected}`;
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

/** Opens a folder by the URLs at which the server shows single files to people. */
export function shownArtifacts(urlOf: (path: string) => string, place: HttpPlace): Artifacts {
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
