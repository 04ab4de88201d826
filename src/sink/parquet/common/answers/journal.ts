import type { AnswerJournal, KeptAnswer } from "../../../answers.js";
import { ifThere, listFolder, type TargetState } from "../file-system.js";
import type { Layout } from "../layout.js";
import { answersIn, textsOf } from "./records.js";

/** The steps of a journal of answers that disks and S3 do differently. */
export interface AnswerFiles {
  /** Creates a file, durable when it returns. @throws JobError PLAN_CHANGED where the run was superseded */
  readonly create: (path: string, text: string) => Promise<void>;
  /**
   * Adds text to a file that this attempt has created, durable when it returns. Returns whether the file is still there.
   * Default: files cannot be changed, and each `keep` creates one.
   */
  readonly append?: (path: string, text: string) => Promise<boolean>;
  /** How many files are read at once. */
  readonly readAtOnce: number;
  /** How long an answer waits for others before it is written, in milliseconds, unless the spec says otherwise: longer where a write is dear. */
  readonly pauseMs: number;
}

/** A larger file gets no more records: readers hold a whole file in memory, or several. */
const fileBytes = 4 * 1024 ** 2;

interface JournalTarget {
  readonly fs: TargetState;
  readonly layout: Layout;
  readonly files: AnswerFiles;
  /** Runs a call on the target; its errors are reported with the act, `doing`. */
  readonly guarded: <T>(doing: string, work: () => Promise<T>) => Promise<T>;
  /** Names this attempt among all attempts on all machines. */
  readonly writer: string;
}

/** Opens the journal of a run: a folder with one or several files of each attempt. */
export function openAnswerFiles(target: JournalTarget): AnswerJournal {
  const { layout, files, guarded } = target;
  let created = 0;
  let current: OpenFile | undefined;
  const write = async (text: string): Promise<void> => {
    const sizeBytes = Buffer.byteLength(text);
    const open = current;
    // If a write fails, the file may end in a torn line: the next write begins a file.
    current = undefined;
    if (open !== undefined && (await append(files, open, { text, sizeBytes }))) {
      current = { path: open.path, sizeBytes: open.sizeBytes + sizeBytes };
      return;
    }
    created += 1;
    const path = `${layout.answers}/${String(created).padStart(6, "0")}.${target.writer}`;
    await files.create(path, text);
    current = { path, sizeBytes };
  };
  return {
    pauseMs: files.pauseMs,
    read: () => readAnswers(target),
    keep: (answers) =>
      guarded(`keeping answers in ${layout.answers}`, async () => {
        for (const text of textsOf(answers, fileBytes)) {
          await write(text);
        }
      }),
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
}

interface OpenFile {
  readonly path: string;
  readonly sizeBytes: number;
}

/** Returns whether the text was added: not where the file would become too large, or was removed. */
async function append(
  files: AnswerFiles,
  open: OpenFile,
  { text, sizeBytes }: { readonly text: string; readonly sizeBytes: number },
): Promise<boolean> {
  return files.append !== undefined && open.sizeBytes + sizeBytes <= fileBytes && (await files.append(open.path, text));
}

/** Yields all answers that are kept of a run. */
export async function* readAnswers({
  fs,
  layout,
  files,
  guarded,
}: Omit<JournalTarget, "writer">): AsyncGenerator<KeptAnswer> {
  const folder = layout.answers;
  const doing = `reading the answers in ${folder}`;
  const names = await guarded(doing, () => listFolder(fs, folder));
  for (let start = 0; start < names.length; start += files.readAtOnce) {
    const group = names.slice(start, start + files.readAtOnce);
    const texts = await guarded(doing, () =>
      Promise.all(group.map((name) => ifThere(fs.readText(`${folder}/${name}`)))),
    );
    for (const text of texts) {
      yield* answersIn(text ?? "");
    }
  }
}
