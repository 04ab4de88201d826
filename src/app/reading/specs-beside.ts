import { readdir, readFile } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";

/** More files are no folder of jobs. */
const mostFiles = 200;

/** Reads the texts of the other YAML files in the folder of a spec that is to be written; without those that cannot be read. */
export async function specsBeside(path: string): Promise<readonly string[]> {
  const folder = dirname(resolve(path));
  const names = await readdir(folder).catch(() => []);
  const others = names.filter((name) => /\.ya?ml$/i.test(name) && name !== basename(path)).slice(0, mostFiles);
  return await Promise.all(others.map((name) => readFile(join(folder, name), "utf8").catch(() => "")));
}

/** Whether the text of a spec has this as the name of its job. */
export function hasName(spec: string, name: string): boolean {
  return [...spec.matchAll(/^name:\s*["']?([^\s"'#]+)/gm)].some(([, found]) => found === name);
}

/** Whether the text of a spec names a folder below `out` for its predictions. */
export function writesToOut(spec: string): boolean {
  return /path:\s*["']?(?:\.\/)?out\//.test(spec);
}
