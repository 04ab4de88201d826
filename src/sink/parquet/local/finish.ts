import { join } from "node:path";
import { errnoOf } from "../../../util/errors.js";
import { spanCount } from "../../../plan/spans.js";
import { replaceDurably } from "./durable.js";
import type { FileSystem } from "../common/file-system.js";
import type { AttemptJson } from "../../port.js";
import type { ProfileToWrite } from "../common/control-files.js";
import { type ManifestPart, manifestPart, manifestText, type ManifestSource } from "../common/manifest.js";
import { removeStaleRejects } from "./rejects.js";
import { successText } from "../common/named-run.js";
import { swapIn } from "./swap.js";
import { clearFolder } from "./temporary.js";

export interface FinishRequest extends ManifestSource {
  readonly writer: string;
  /** Throws when another plan is stored at the target, or a later run was opened. */
  readonly check: () => Promise<unknown>;
  readonly profile: ProfileToWrite;
  /** What the attempt that finishes the run did. */
  readonly attempt: AttemptJson | undefined;
}

/**
 * Moves the parts into place, writes the profile and the manifest, then `_SUCCESS`, then removes the key and the working
 * folders. Each step may be repeated.
 */
export async function writeFinish(fs: FileSystem, request: FinishRequest): Promise<void> {
  const { layout, stored, writer, check } = request;
  const parts: ManifestPart[] = [];
  for (let span = 0; span < spanCount(stored.plan); span += 1) {
    parts.push(await manifestPart(fs, request, span));
  }
  if (layout.staged) {
    // Computing the digests takes time. A run that was superseded meanwhile must not remove an earlier run's rows.
    await check();
    await swapIn(fs, layout, { spans: parts.map(({ span }) => span), writer });
  }
  await removeStaleRejects(fs, layout, parts);
  await replaceDurably(fs, {
    temporary: join(layout.temporary, `profile.${writer}`),
    final: layout.profile,
    text: request.profile.text,
    check,
  });
  await replaceDurably(fs, {
    temporary: join(layout.temporary, `manifest.${writer}`),
    final: layout.manifest,
    text: manifestText(stored, parts, { profile: request.profile.entry, attempt: request.attempt }),
    check,
  });
  await replaceDurably(fs, {
    temporary: join(layout.temporary, `success.${writer}`),
    final: layout.success,
    text: successText(stored),
    check,
  });
  await fs.removeFolder(layout.temporary).catch((error: unknown) => {
    // Another attempt wrote into the folder just now; it will finish, too.
    if (errnoOf(error) !== "ENOTEMPTY") {
      throw error;
    }
  });
  if (layout.staged) {
    await clearFolder(fs, layout.parts);
  }
  await clearFolder(fs, layout.answers);
}
