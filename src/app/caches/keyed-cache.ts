import { createHash, randomBytes } from "node:crypto";
import { mkdir, readFile, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { z } from "../../util/zod.js";
import { parseJson } from "../../plan/parse-plan.js";
import { cacheFolder } from "../../util/cache-folder.js";

/** The results of a measurement, in a small file in the cache folder of this user. */
export interface KeyedCache<T> {
  /** undefined: there is no earlier result, or the file is not ours. */
  read(): Promise<T | undefined>;
  /** @throws system errors */
  write(found: T): Promise<void>;
}

/** Opens the file for everything that a result depends on. @param name the folder within the cache folder */
export function openKeyedCache<T>(name: string, key: unknown, schema: z.ZodType<T>): KeyedCache<T> {
  const folder = cacheFolder(name);
  const file = join(folder, `${createHash("sha256").update(JSON.stringify(key)).digest("hex")}.json`);
  return {
    async read() {
      try {
        return schema.safeParse(parseJson(await readFile(file, "utf8"))).data;
      } catch {
        return undefined; // it can be measured again
      }
    },
    async write(found) {
      await mkdir(folder, { recursive: true });
      const temporary = `${file}.${process.pid}.${randomBytes(4).toString("hex")}`;
      await writeFile(temporary, JSON.stringify(found));
      await rename(temporary, file);
    },
  };
}
