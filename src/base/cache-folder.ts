import { homedir } from "node:os";
import { join } from "node:path";

/** Returns a folder for data that can be fetched or measured again, such as models and batch limits. */
export function cacheFolder(name: string): string {
  const caches = process.env["XDG_CACHE_HOME"];
  return join(caches === undefined || caches === "" ? join(homedir(), ".cache") : caches, "infer-batch", name);
}
