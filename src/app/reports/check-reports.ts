import { stat } from "node:fs/promises";
import { dirname } from "node:path";
import { errnoOf, messageOf } from "../../util/errors.js";
import { nearestExisting, requireWritableFolder } from "../../util/spool.js";
import { type CallContext, plainUrlAt } from "./call-urls.js";
import { placeReports } from "./files.js";
import { tokenOf } from "./lineage.js";

/**
 * Checks what an attempt reports to, for a dry run: warns of files that cannot be written, and of secrets that cannot be
 * read. Writes nothing and calls nothing.
 * @throws JobError USAGE if a report would be in the folder of the predictions
 */
export async function checkReports(context: Pick<CallContext, "loaded" | "folder" | "log">): Promise<void> {
  const { loaded, folder, log } = context;
  const { report } = loaded.spec;
  const files = await placeReports(loaded, { folder, worker: { index: 0, count: 1 } });
  for (const key of ["html", "metrics"] as const) {
    const path = files[key];
    const found = path === undefined ? undefined : await whyUnwritable(path);
    if (found !== undefined) {
      log.warn(
        `checking report.${key}: ${path} cannot be written (${found}), and a run goes on without it; grant this user write access, or change report.${key}`,
      );
    }
  }
  for (const key of ["on_success", "on_failure", "on_held", "on_late"] as const) {
    await (report[key] === "" ? undefined : plainUrlAt(context, [key], report[key]));
  }
  const { openlineage } = report;
  if (openlineage !== undefined && openlineage.url !== "") {
    await plainUrlAt(context, ["openlineage", "url"], openlineage.url);
    await tokenOf(context, openlineage);
  }
}

/** @returns the error that writing the file would end with; undefined: none was found */
async function whyUnwritable(path: string): Promise<string | undefined> {
  try {
    if ((await stat(path).catch(() => undefined))?.isDirectory() === true) {
      return "EISDIR";
    }
    await requireWritableFolder(await nearestExisting(dirname(path)));
    return undefined;
  } catch (error) {
    return errnoOf(error) ?? messageOf(error);
  }
}
