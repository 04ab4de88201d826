/** A folder in the cache of what tests install for themselves. */
export function cacheFolder(name: string): string;

/** Has `build` make the file `made` unless it is there, in one process at a time. */
export function buildOnce<T>(made: string, build: (emptyFolder: string) => T): T | undefined;

/** Installs a program that Go builds from a module. */
export function installGo(
  module: string,
  version: string,
): { readonly program: string } | { readonly missing: string };
