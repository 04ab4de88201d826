import { homedir } from "node:os";
import { join } from "node:path";

/** Returns a folder for data that can be fetched or measured again, such as models and batch limits. */
export function cacheFolder(name: string): string {
  const given = process.env["XDG_CACHE_HOME"];
  return join(given === undefined || given === "" ? join(homedir(), ".cache") : given, "infer-batch", name);
}
