import { readFileSync } from "node:fs";

/** Text of a file below the root, or undefined where there is none. */
export type ReadText = (path: string) => string | undefined;

export function readText(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return undefined; // not Linux, or a file that this user may not read: nothing is known then
  }
}
