import type { JobSpec } from "../../spec/job-spec.js";
import { bucketName, isObjectUri, parseObjectUri } from "../../spec/uri.js";

/** A dataset as OpenLineage names it: https://openlineage.io/docs/spec/naming */
export interface DatasetName {
  readonly namespace: string;
  readonly name: string;
}

/** The limit of input datasets in an event. A spec may list thousands of files. */
const mostInputs = 50;

/**
 * Returns the folders and files of the input as datasets, without duplicates.
 * @param absolute makes a path on this machine absolute
 */
export function inputDatasets({ input }: JobSpec, absolute: (path: string) => string): DatasetName[] {
  const named = input.path.map((path) => filesDataset(path, absolute));
  return [...new Map(named.map((dataset) => [JSON.stringify(dataset), dataset])).values()].slice(0, mostInputs);
}

/**
 * Returns the dataset of a file, or of files in a folder. Like OpenLineage's own clients, it removes trailing segments
 * that change from run to run: wildcards, `dt=2026-11-22` and dates. So the runs of all dates have the same dataset.
 */
export function filesDataset(path: string, absolute: (path: string) => string): DatasetName {
  const uri = isObjectUri(path) ? parseObjectUri(path) : undefined;
  const segments = (uri?.key ?? absolute(path)).split("/");
  const wildcard = segments.findIndex((segment) => /[*?[\]{}]/.test(segment));
  const fixed = wildcard < 0 ? segments : segments.slice(0, wildcard);
  if (fixed.length > 2 && /\.\w+$/.test(fixed.at(-1) ?? "") && isOfOneRun(fixed.at(-2) ?? "")) {
    fixed.pop(); // a file in the folder of one run
  }
  while (fixed.length > 1 && isOfOneRun(fixed.at(-1) ?? "")) {
    fixed.pop();
  }
  const name = fixed.join("/") || "/";
  return { namespace: uri === undefined ? "file" : bucketName(uri), name };
}

function isOfOneRun(segment: string): boolean {
  return segment === "" || /^[^=]+=[^=]*$|^\d{4}-?\d{2}-?\d{2}(\.\w+)?$/.test(segment);
}

/**
 * Returns the dataset of a Postgres table; undefined if the URL does not name the server. It contains only host, port
 * and database of the URL.
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
  // An @ after the host belongs to a password that is not escaped. The target rejects such a URL.
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
