import { randomBytes } from "node:crypto";
import { mkdir, readFile, rename, stat, writeFile } from "node:fs/promises";
import { totalmem } from "node:os";
import { join } from "node:path";
import { z } from "../util/zod.js";
import { errnoOf, messageOf } from "../util/errors.js";
import { parseJson } from "../plan/parse-plan.js";
import type { BatchLimitCache, BatchLimitKey, Log } from "../scoring/context.js";
import { cacheFolder } from "../util/cache-folder.js";
import { componentVersions } from "./version.js";
import { sha256Of } from "../util/sha256.js";

/** A limit expires after this time: the program that used the memory may have ended. */
const believedMs = 30 * 24 * 60 * 60 * 1000;

const schema = z.object({ rows: z.int().min(1) });

/** Opens the cache of batch limits: a small file for each model and device, in the cache folder of this user. */
export function openBatchLimitCache(log: Pick<Log, "debug">, folder = cacheFolder("batch-limits")): BatchLimitCache {
  return {
    async find(of) {
      const path = await fileOf(folder, of);
      try {
        const { mtimeMs } = await stat(path);
        const found = schema.safeParse(parseJson(await readFile(path, "utf8")));
        return found.success && Date.now() - mtimeMs < believedMs ? found.data.rows : undefined;
      } catch (error) {
        if (errnoOf(error) !== "ENOENT") {
          log.debug(`reading what fits on ${of.device} in ${folder}: ${errnoOf(error) ?? messageOf(error)}`);
        }
        return undefined; // it is found out again
      }
    },
    async keep(of, rows) {
      const path = await fileOf(folder, of);
      const temporary = `${path}.${process.pid}.${randomBytes(4).toString("hex")}`;
      try {
        await mkdir(folder, { recursive: true });
        await writeFile(temporary, `${JSON.stringify({ rows, ...of })}\n`);
        await rename(temporary, path);
      } catch (error) {
        log.debug(`keeping what fits on ${of.device} in ${folder}: ${errnoOf(error) ?? messageOf(error)}`);
      }
    },
  };
}

/** Returns the file of a limit. Another device, driver, library or model has another file. */
async function fileOf(folder: string, { modelSha256, device, rowBytes }: BatchLimitKey): Promise<string> {
  const memory = device === "cpu" ? String(totalmem()) : await identityOfGpus();
  const key = [modelSha256, device, rowBytes, memory, componentVersions["onnxruntime-node"] ?? ""];
  return join(folder, `${sha256Of(key.join("\n"))}.json`);
}

/** The modules that inspect GPUs are loaded only if there is one in use. */
async function identityOfGpus(): Promise<string> {
  const { thisMachine } = await import("../engine/devices/machine.js");
  const { gpuIdentity } = await import("../engine/devices/gpus.js");
  return gpuIdentity(thisMachine());
}
