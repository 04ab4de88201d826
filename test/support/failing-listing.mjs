/*
 * Given to node with --import: a disk on which folders cannot be listed.
 *
 *   LISTING_FAILS  `<errno> <path>`: what listing that folder ends with
 */
import callbacks from "node:fs";
import promises from "node:fs/promises";
import { syncBuiltinESMExports } from "node:module";
import { resolve } from "node:path";

const [, code, folder = ""] = /^(\w+) (.+)$/.exec(process.env["LISTING_FAILS"] ?? "") ?? [];
const { readdir: byCallback } = callbacks;
const { readdir } = promises;

function failureOf(path) {
  return code === undefined || resolve(String(path)) !== folder
    ? undefined
    : Object.assign(new Error(`${code}: scandir '${path}'`), { code, syscall: "scandir", path });
}

callbacks.readdir = (path, ...rest) => {
  const failure = failureOf(path);
  if (failure === undefined) {
    byCallback(path, ...rest);
  } else {
    rest.at(-1)(failure);
  }
};
promises.readdir = (path, ...rest) => {
  const failure = failureOf(path);
  return failure === undefined ? readdir(path, ...rest) : Promise.reject(failure);
};
syncBuiltinESMExports();
