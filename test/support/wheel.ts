import { execFileSync } from "node:child_process";

const script = `
import json, sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w") as wheel:
    for name, text in json.loads(sys.argv[2]).items():
        wheel.writestr(name, text)
`;

/** Writes a wheel, which is a zip archive, with these files. Needs python3. @param files texts by path */
export function writeWheel(path: string, files: Readonly<Record<string, string>>): void {
  execFileSync("python3", ["-c", script, path, JSON.stringify(files)]);
}
