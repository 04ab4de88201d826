/** What is recorded of a run once: that it is `late`; that `report.on_held` was called, so that a person was `told`. */
export type RunNote = "late" | "told";

/** Notes that a target keeps of a run. */
export interface RunNotes {
  /** Records a note, unless it is there already. Returns whether this attempt has recorded it. */
  add(note: RunNote, text: string): Promise<boolean>;
  has(note: RunNote): Promise<boolean>;
}
