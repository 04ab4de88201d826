import type { JobSpec } from "../../spec/job-spec.js";
import { isS3Uri, parseS3Uri } from "../../spec/s3-uri.js";

/** A dataset as OpenLineage names it: https://openlineage.io/docs/spec/naming */
export interface DatasetName {
  readonly namespace: string;
  readonly name: string;
}

/** Datasets that are named; a spec may list thousands of files. */
const mostInputs = 50;

/** The folders and files of the input, each once. @param absolute makes a path on this machine absolute */
export function inputDatasets({ input }: JobSpec, absolute: (path: string) => string): DatasetName[] {
  const named = input.path.map((path) => filesDataset(path, absolute));
  return [...new Map(named.map((dataset) => [JSON.stringify(dataset), dataset])).values()].slice(0, mostInputs);
}

/**
 * A file, or files in a folder. Segments that change from run to run are left out at the end, as OpenLineage's own
 * clients do: wildcards, `dt=2026-11-22` and dates. So each night has the dataset of the night before.
 */
export function filesDataset(path: string, absolute: (path: string) => string): DatasetName {
  const { bucket, key } = isS3Uri(path) ? parseS3Uri(path) : { bucket: undefined, key: absolute(path) };
  const segments = key.split("/");
  const wildcard = segments.findIndex((segment) => /[*?[\]{}]/.test(segment));
  const fixed = wildcard < 0 ? segments : segments.slice(0, wildcard);
  if (fixed.length > 2 && /\.\w+$/.test(fixed.at(-1) ?? "") && isOfOneRun(fixed.at(-2) ?? "")) {
    fixed.pop(); // a file in the folder of one run
  }
  while (fixed.length > 1 && isOfOneRun(fixed.at(-1) ?? "")) {
    fixed.pop();
  }
  const name = fixed.join("/") || "/";
  return bucket === undefined ? { namespace: "file", name } : { namespace: `s3://${bucket}`, name };
}

function isOfOneRun(segment: string): boolean {
  return segment === "" || /^[^=]+=[^=]*$|^\d{4}-?\d{2}-?\d{2}(\.\w+)?$/.test(segment);
}

/**
 * A table of Postgres; undefined where the URL does not name the server. Nothing but host, port and database is taken
 * from the URL.
 */
export function tableDataset(
  url: string,
  table: string,
  env: Readonly<Record<string, string | undefined>>,
): DatasetName | undefined {
  if (url !== "" && !URL.canParse(url)) {
    return undefined;
  }
  const parsed = url === "" ? undefined : new URL(url);
  // An @ behind the host belongs to a password that is not escaped; the target refuses such a URL.
  if (parsed !== undefined && `${parsed.pathname}${parsed.search}${parsed.hash}`.includes("@")) {
    return undefined;
  }
  const host = parsed?.hostname || env["PGHOST"] || "localhost";
  const port = parsed?.port || env["PGPORT"] || "5432";
  const database = parsed?.pathname.slice(1) || env["PGDATABASE"] || parsed?.username || env["PGUSER"];
  const qualified = table.includes(".") ? table : `public.${table}`;
  return {
    namespace: `postgres://${host}:${port}`,
    name: database === undefined ? qualified : `${database}.${qualified}`,
  };
}
