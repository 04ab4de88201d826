import { spawnSync } from "node:child_process";
import { copyFileSync, renameSync } from "node:fs";
import { join } from "node:path";
import { buildOnce } from "./build-once.mjs";

/** Has Maven fetch what a pom.xml names into a folder, once. Returns why it cannot; undefined: the jars are there. */
export function fetchJars(jars: string, pom: string, what: string): string | undefined {
  return buildOnce(jars, (making) => {
    if (spawnSync("java", ["-version"]).status !== 0 || spawnSync("mvn", ["-version"]).status !== 0) {
      return `${what} needs Java and Maven`;
    }
    console.warn(`fetching ${what} into ${jars}: once, some 50 MB`);
    copyFileSync(pom, join(making, "pom.xml"));
    const args = ["-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=jars"];
    const fetched = spawnSync("mvn", args, { cwd: making, encoding: "utf8" });
    if (fetched.status !== 0) {
      return `mvn failed: ${fetched.stdout.slice(-300)}`;
    }
    renameSync(join(making, "jars"), jars);
    return undefined;
  });
}
