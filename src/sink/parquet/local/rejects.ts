import { join } from "node:path";
import { type FileSystem, ifThere, listFolder } from "../common/file-system.js";
import type { Layout } from "../common/layout.js";
import { findPart } from "../common/parts.js";
import { type RejectsText, staleRejects } from "../common/rejects.js";
import { ensureFolder, replaceDurably } from "./durable.js";

interface RejectsFile extends RejectsText {
  readonly layout: Layout;
  readonly span: number;
  readonly writer: string;
  /** Throws when another plan is stored at the target, or a later run was opened. */
  readonly check: () => Promise<unknown>;
}

/** Prefix of files of rejects that are not published yet. */
const temporaryName = "rejects-";

/** Thrown when another attempt has committed the span: the rows that it rejected count. */
class Committed extends Error {
  /** Path of the committed part. */
  readonly path: string;

  constructor(path: string) {
    super(`the part is ${path}`);
    this.path = path;
  }
}

/**
 * Publishes a span's rejected rows, before the part that commits them. Where another attempt has committed the part, it
 * publishes nothing, and returns the path of that part: after the finish, nothing would remove the rejects.
 *
 * The part is looked for when the temporary file is there. A finish comes after the part: it first removes the
 * temporary file, then stale rejects. So either the part is found here, or the finish finds this file, under one of its
 * names.
 */
export async function writeRejects(
  fs: FileSystem,
  { layout, span, text, sha256, writer, check }: RejectsFile,
): Promise<string | undefined> {
  if (sha256 === null) {
    return undefined;
  }
  await ensureFolder(fs, layout.rejects);
  try {
    await replaceDurably(fs, {
      temporary: join(layout.temporary, `${temporaryName}${span}.${writer}`),
      final: join(layout.rejects, layout.rejectsOf(span, sha256)),
      text,
      async check() {
        await check();
        const found = await findPart(fs, layout, span);
        if (found !== undefined) {
          throw new Committed(found.path);
        }
      },
    });
  } catch (error) {
    if (error instanceof Committed) {
      return error.path;
    }
    throw error;
  }
  await fs.sync(layout.folder); // also the name of the folder: a part next to it must not survive without it
  return undefined;
}

/** Removes files of rejects of this run that no part names, and those that are not published yet. */
export async function removeStaleRejects(
  fs: FileSystem,
  layout: Layout,
  parts: readonly { readonly span: number; readonly rejects_sha256: string | null }[],
): Promise<void> {
  for (const name of await listFolder(fs, layout.temporary)) {
    if (name.startsWith(temporaryName)) {
      await ifThere(fs.unlink(join(layout.temporary, name))); // see `writeRejects`
    }
  }
  for (const name of await staleRejects(fs, layout, parts)) {
    await ifThere(fs.unlink(join(layout.rejects, name)));
  }
  // Readers of a finished run must not find stale rejects again. Also where none are left: the attempt that removed
  // them may have died before it flushed that.
  await ifThere(fs.sync(layout.rejects));
}
