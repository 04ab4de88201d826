import { parseJson } from "../../../plan/parse-plan.js";
import { z } from "../../../util/zod.js";
import type { RunNote, RunNotes } from "../../run-notes.js";
import { ifThere, type TargetState } from "./file-system.js";
import type { Layout } from "./layout.js";

/** The steps of notes that disks and S3 do differently. */
interface NotesTools {
  /** Runs `work`; errors of the disk or the store are reported with the act, `doing`. */
  readonly guarded: <T>(doing: string, work: () => Promise<T>) => Promise<T>;
  /** Creates a file durably, unless it is there. */
  readonly createOnce: (path: string, text: string) => Promise<void>;
}

const schema = z.object({ at: z.string() });

/** Keeps each note on a run in a file. `writer` names this attempt. */
export function runNotes(
  { fs, layout }: { readonly fs: TargetState; readonly layout: Layout },
  { guarded, createOnce }: NotesTools,
  writer: string,
): RunNotes {
  const textOf = (note: RunNote): Promise<string | undefined> => ifThere(fs.readText(layout.notes[note]));
  return {
    add: (note, text) =>
      guarded(`writing ${layout.notes[note]}`, async () => {
        const own = `${JSON.stringify({ at: new Date().toISOString(), writer, text })}\n`;
        await createOnce(layout.notes[note], own);
        return (await textOf(note)) === own;
      }),
    timeOf: (note) =>
      guarded(`reading ${layout.notes[note]}`, async () => {
        const text = await textOf(note);
        // A note that cannot be parsed is there anyway.
        return text === undefined
          ? undefined
          : (schema.safeParse(parseJson(text)).data?.at ?? new Date(0).toISOString());
      }),
  };
}
