// Real servers of Azure's and Google's storage: where their programs are, and how they are reached. Both are made once, in
// a cache outside of the checkout.
import { spawnSync } from "node:child_process";
import { createHmac } from "node:crypto";
import { existsSync, renameSync } from "node:fs";
import { join } from "node:path";
import { buildOnce, cacheFolder, installGo } from "./build-once.mjs";

const azuriteVersion = "3.35.0";
const fakeGcsVersion = "v1.56.1";

/** @returns the script of Azurite; or why there is none */
export function findAzurite() {
  const given = process.env["INFER_BATCH_AZURITE"];
  if (given !== undefined && given !== "") {
    return { program: given };
  }
  const folder = cacheFolder(`azurite-${azuriteVersion}`);
  const script = join(folder, "installed/node_modules/azurite/dist/src/blob/main.js");
  const failed = buildOnce(join(folder, "installed"), (making) => {
    console.warn(`installing azurite@${azuriteVersion} into ${folder}: once, some 15 s and 190 MB`);
    const options = ["--prefix", making, "--ignore-scripts", "--no-audit", "--no-fund", "--omit=optional"];
    const installed = spawnSync("npm", ["install", ...options, `azurite@${azuriteVersion}`], { encoding: "utf8" });
    if (installed.status !== 0) {
      return `npm install azurite failed: ${installed.stderr?.slice(-300) ?? installed.error?.message}`;
    }
    renameSync(making, join(folder, "installed"));
    return undefined;
  });
  return failed === undefined && existsSync(script)
    ? { program: script }
    : { missing: failed ?? `${script} is missing` };
}

/** @returns the program of fake-gcs-server, or of a `version` of it; or why there is none */
export function findFakeGcs(version = fakeGcsVersion) {
  const given = process.env["INFER_BATCH_FAKE_GCS"];
  return given !== undefined && given !== "" && version === fakeGcsVersion
    ? { program: given }
    : installGo("github.com/fsouza/fake-gcs-server", version);
}

export const azureAccount = "devstoreaccount1";
/** The key that each Azurite has. */
export const azureKey = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/** A SAS of the account for everything, valid for a day. @param permissions such as "rwdlac" */
export function azureSas(permissions = "rwdlacupx") {
  const expiry = new Date(Date.now() + 86_400_000).toISOString().replace(/\.\d+Z$/, "Z");
  const [services, types, version] = ["b", "sco", "2023-11-03"];
  const signed = [azureAccount, permissions, services, types, "", expiry, "", "", version, "", ""].join("\n");
  const sig = createHmac("sha256", Buffer.from(azureKey, "base64")).update(signed, "utf8").digest("base64");
  return new URLSearchParams({ sv: version, ss: services, srt: types, sp: permissions, se: expiry, sig }).toString();
}
