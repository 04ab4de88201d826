// Completes package-lock.json after `npm install` on a registry that lacks some platforms' packages: npm leaves
// them out of the lock, and then `npm ci` refuses it everywhere. What is added is what the parent package names:
// the exact version, and the platform that its name tells. `npm ci` fetches it on that platform only.
import { readFileSync, writeFileSync } from "node:fs";

const path = new URL("../package-lock.json", import.meta.url);
const lock = JSON.parse(readFileSync(path, "utf8"));

const systems = {
  android: "android",
  darwin: "darwin",
  freebsd: "freebsd",
  linux: "linux",
  openharmony: "openharmony",
  win32: "win32",
};
const processors = {
  arm: "arm",
  arm64: "arm64",
  ia32: "ia32",
  ppc64: "ppc64",
  riscv64: "riscv64",
  s390x: "s390x",
  x64: "x64",
};
const libraries = { gnu: "glibc", musl: "musl", gnueabihf: "glibc", musleabihf: "musl" };

/** @param {string} name such as `@scope/binding-linux-x64-musl` */
function platformOf(name) {
  const words = name.replace(/^@[^/]+\//, "").split("-");
  const pick = (table) => words.map((word) => table[word]).filter((value) => value !== undefined);
  const [os, cpu, libc] = [pick(systems), pick(processors), pick(libraries)];
  return os.length === 1 && cpu.length === 1
    ? { cpu, ...(libc.length === 1 && os[0] === "linux" ? { libc } : {}), os }
    : undefined;
}

const added = [];
for (const parent of Object.values(lock.packages)) {
  for (const [name, version] of Object.entries(parent.optionalDependencies ?? {})) {
    const entry = `node_modules/${name}`;
    const platform = platformOf(name);
    if (lock.packages[entry] !== undefined || platform === undefined || !/^\d/.test(version)) {
      continue;
    }
    lock.packages[entry] = { version, ...platform, ...(parent.dev === true ? { dev: true } : {}), optional: true };
    added.push(`${name}@${version}`);
  }
}

const sorted = Object.entries(lock.packages).toSorted(([one], [other]) => (one < other ? -1 : 1));
lock.packages = Object.fromEntries(sorted);
writeFileSync(path, `${JSON.stringify(lock, undefined, 2)}\n`);
console.log(added.length === 0 ? "the lock is complete" : `added ${added.length}: ${added.join(", ")}`);
