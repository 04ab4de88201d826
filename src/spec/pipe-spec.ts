import { isMap } from "yaml";
import type { YamlDocument } from "./yaml-text.js";

/** Where a pipe's rows come from, as the spec would name it. */
export const pipeName = "stdin";

/** Keys that a pipe does not use: places of input and output, completeness checks, commits and notifications. */
const unused = [
  ...["path", "format", "ready", "wait", "min_rows", "partitions", "verify", "spool"].map((key) => ["input", key]),
  ...["endpoint", "region", "path_style", "request_payer", "timeouts"].map((key) => ["input", key]),
  ["output", "parquet"],
  ["output", "postgres"],
  ["challenger"],
  ["reuse"],
  ["commit_rows"],
  ["report"], // there may be hundreds of pipes
];

/** Removes these keys from a spec before it is checked: their variables need not be set where a pipe runs. */
export function withoutPlaces(document: YamlDocument): void {
  for (const path of unused) {
    if (document.hasIn(path)) {
      document.deleteIn(path);
    }
  }
  for (const key of ["input", "output"]) {
    if (!document.has(key)) {
      document.set(key, document.createNode({}));
    }
  }
  if (isMap(document.get("input", true))) {
    document.setIn(["input", "path"], pipeName);
  }
}
