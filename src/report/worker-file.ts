import type { Worker } from "../plan/spans.js";

/** Returns the file in which a worker reports: the one that the spec names, or of several workers one each. */
export function workerFile(path: string, { index, count }: Worker): string {
  const [stem, extension] = splitAtExtension(path);
  return count === 1 ? path : `${stem}.worker-${index}${extension}`;
}

/** Whether a file is the one that the spec names, or that of one of several workers. */
export function isWorkerFile(file: string, path: string): boolean {
  const [stem, extension] = splitAtExtension(path);
  return file === path || (file.startsWith(stem) && /^\.worker-\d+$/.test(between(file, stem, extension)));
}

function between(file: string, stem: string, extension: string): string {
  return file.endsWith(extension) ? file.slice(stem.length, file.length - extension.length) : "";
}

/** Splits a path as Node's `path.parse` splits its base name. */
function splitAtExtension(path: string): readonly [string, string] {
  const extension = /[^/.][^/]*?(\.[^./]*)$/.exec(path)?.[1] ?? "";
  return [path.slice(0, path.length - extension.length), extension];
}
