/*
 * Completes package-lock.json after `npm install`. With --check it changes nothing, needs no network, and fails when
 * something is missing.
 *
 * - A registry that lacks some platforms' packages makes npm leave them out of the lock, and then `npm ci` refuses it
 *   everywhere. What is added is what the parent package names: the exact version, and the platform that its name tells.
 *   `npm ci` fetches it on that platform only.
 * - Each entry has the digest of its package. If this machine's registry lacks a package, its digest is unknown here: the
 *   entry is listed in scripts/unverified.json until `npm run lock` runs with a registry that has the package.
 * - No entry names a registry: a mirror's address is of no use elsewhere.
 * - onnxruntime-node's install script would fetch CUDA files from outside npm. npm 10 runs it when the lock says that
 *   there is one, so the lock does not. npm 11.16 and later read `allowScripts` in package.json, which decides about
 *   every package that has a script.
 */
import { execFile } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";

const path = new URL("../package-lock.json", import.meta.url);
const { allowScripts } = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8"));
const unverifiedPath = new URL("unverified.json", import.meta.url);
const withoutScript = "node_modules/onnxruntime-node";
const queriesAtOnce = 4;

const systems = new Set(["android", "darwin", "freebsd", "linux", "openharmony", "win32"]);
const processors = new Set(["arm", "arm64", "ia32", "ppc64", "riscv64", "s390x", "x64"]);
const libraries = { gnu: "glibc", musl: "musl", gnueabihf: "glibc", musleabihf: "musl" };

/** @param {string} name such as `@scope/binding-linux-x64-musl` */
function platformOf(name) {
  const words = name.replace(/^@[^/]+\//, "").split("-");
  const os = words.filter((word) => systems.has(word));
  const cpu = words.filter((word) => processors.has(word));
  const libc = words.map((word) => libraries[word]).filter((value) => value !== undefined);
  return os.length === 1 && cpu.length === 1
    ? { cpu, ...(libc.length === 1 && os[0] === "linux" ? { libc } : {}), os }
    : undefined;
}

/** Entries for the platforms' packages that npm left out, by their place in the lock. */
function absentEntries(packages) {
  const absent = {};
  for (const parent of Object.values(packages)) {
    for (const [name, version] of Object.entries(parent.optionalDependencies ?? {})) {
      const entry = `node_modules/${name}`;
      const platform = platformOf(name);
      if (packages[entry] === undefined && platform !== undefined && /^\d/.test(version)) {
        absent[entry] = { version, ...platform, ...(parent.dev === true ? { dev: true } : {}), optional: true };
      }
    }
  }
  return absent;
}

const nameOf = (entry) => entry.replace(/^.*node_modules\//, "");

/** `name@version` of a place in the lock. */
const specOf = ([entry, { version }]) => `${nameOf(entry)}@${version}`;

const unverifiedOf = (packages) =>
  Object.entries(packages).filter(([entry, { integrity }]) => entry !== "" && integrity === undefined);

/** The digest that the registry has for a package; undefined where it does not have the package. */
async function fetchIntegrity(spec) {
  const { stdout, error } = await new Promise((resolve) => {
    execFile("npm", ["view", spec, "dist.integrity", "--json"], (failure, out) => {
      resolve({ stdout: out, error: failure });
    });
  });
  const answer = stdout.trim() === "" ? undefined : JSON.parse(stdout);
  if (error === null) {
    return answer;
  }
  if (answer?.error?.code !== "E404") {
    throw new Error(`asking the registry for ${spec}: ${answer?.error?.summary ?? error.message}`);
  }
  return undefined;
}

async function addDigests(entries) {
  const waiting = [...entries];
  const work = async () => {
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
      const integrity = await fetchIntegrity(specOf(next));
      if (integrity !== undefined) {
        next[1].integrity = integrity;
      }
    }
  };
  await Promise.all(Array.from({ length: queriesAtOnce }, work));
}

const lock = JSON.parse(readFileSync(path, "utf8"));
const absent = absentEntries(lock.packages);

/** What `npm run lock` would mend, or a person. */
function findingsOf({ packages }) {
  const known = JSON.parse(readFileSync(unverifiedPath, "utf8"));
  const unverified = unverifiedOf(packages).map(specOf);
  return [
    ...Object.entries(absent).map((entry) => `${specOf(entry)} has no entry`),
    ...unverified.filter((spec) => !known.includes(spec)).map((spec) => `${spec} has no integrity`),
    ...known.filter((spec) => !unverified.includes(spec)).map((spec) => `${spec} is in unverified.json in vain`),
    ...Object.entries(packages)
      .filter(([, { resolved }]) => resolved?.startsWith("http"))
      .map((entry) => `${specOf(entry)} names a registry`),
    ...(packages[withoutScript]?.hasInstallScript === true ? ["npm 10 would run onnxruntime-node's script"] : []),
    ...Object.entries(packages)
      .filter(
        ([entry, { hasInstallScript }]) => hasInstallScript === true && !Object.hasOwn(allowScripts, nameOf(entry)),
      )
      .map((entry) => `${specOf(entry)} has an install script that allowScripts in package.json does not decide about`),
  ];
}

if (process.argv.includes("--check")) {
  for (const finding of findingsOf(lock)) {
    console.error(`package-lock.json: ${finding}; npm run lock completes it`);
    process.exitCode = 1;
  }
} else {
  const all = Object.entries({ ...lock.packages, ...absent }).toSorted(([one], [other]) => (one < other ? -1 : 1));
  lock.packages = Object.fromEntries(all);
  for (const [, entry] of all) {
    if (entry.resolved?.startsWith("http")) {
      delete entry.resolved;
    }
  }
  delete lock.packages[withoutScript].hasInstallScript;
  await addDigests(unverifiedOf(lock.packages));
  writeFileSync(path, `${JSON.stringify(lock, undefined, 2)}\n`);
  const unverified = unverifiedOf(lock.packages).map(specOf);
  writeFileSync(unverifiedPath, `${JSON.stringify(unverified, undefined, 2)}\n`);
  console.log(`added: ${Object.entries(absent).map(specOf).join(", ") || "nothing"}`);
  console.log(`without a digest, which the registry does not have: ${unverified.length}`);
}
