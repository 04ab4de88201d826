import type { ColumnType, OutputRows } from "../columnar/types.js";

/** The write end of a pipe: a program reads the rows in order, as they come. */
export interface RowWriter {
  /**
   * Writes the columns' names and types, before any rows. @throws JobError CONTRACT for a type that the stream cannot
   * express
   */
  begin(columns: readonly { readonly name: string; readonly type: ColumnType }[]): Promise<void>;
  /** Writes rows, and resolves when more can be written. Calls never overlap. */
  write(rows: OutputRows): Promise<void>;
  /** Marks the end of the rows: a reader that does not find the mark knows that some are missing. */
  end(): Promise<void>;
}
