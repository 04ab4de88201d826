/*
 * Given to node with --import: runs another command to its end when the program has made its n-th call that reads
 * something below a folder, and only then lets it have the result.
 *
 *   AMID_ROOT     the folder
 *   AMID_AT       n, from 1
 *   AMID_COMMAND  JSON: the arguments of node for the other command
 *   AMID_TRACE    a file that is written when the other command has run: its exit code
 */
import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import promises from "node:fs/promises";
import { syncBuiltinESMExports } from "node:module";
import { isMainThread } from "node:worker_threads";

const { AMID_ROOT: root = "", AMID_AT: at, AMID_COMMAND: command = "[]", AMID_TRACE: trace = "" } = process.env;
let calls = 0;

if (isMainThread && root !== "") {
  for (const name of ["open", "readdir", "readFile", "stat"]) {
    const original = promises[name];
    promises[name] = async (path, ...rest) => {
      const result = await original.call(promises, path, ...rest).then(
        (value) => () => value,
        (error) => () => {
          throw error;
        },
      );
      if (String(path).startsWith(root)) {
        calls += 1;
        if (calls === Number(at)) {
          const { AMID_ROOT: _, ...env } = process.env;
          const { status } = spawnSync(process.execPath, JSON.parse(command), { env, stdio: "ignore" });
          writeFileSync(trace, String(status));
        }
      }
      return result();
    };
  }
  syncBuiltinESMExports();
}
