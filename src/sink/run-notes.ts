/**
 * What is recorded of a run once: that it is `late`; that `report.on_late` was called (`late_told`); that
 * `report.on_held` was called, so that a person was `told`.
 */
export type RunNote = "late" | "late_told" | "told";

/** Notes that a target keeps of a run. */
export interface RunNotes {
  /** Records a note, unless it is there already. Returns whether this attempt has recorded it. */
  add(note: RunNote, text: string): Promise<boolean>;
  /** Returns when a note was recorded, ISO 8601 in UTC; undefined: it was not. */
  timeOf(note: RunNote): Promise<string | undefined>;
}
