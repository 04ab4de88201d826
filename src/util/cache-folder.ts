import { homedir } from "node:os";
import { join } from "node:path";

/** What may be found out again: models by digest, what devices have room for. */
export function cacheFolder(name: string): string {
  const given = process.env["XDG_CACHE_HOME"];
  return join(given === undefined || given === "" ? join(homedir(), ".cache") : given, "infer-batch", name);
}
