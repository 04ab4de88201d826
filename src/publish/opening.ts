/** How a run is opened. */
export interface Opening {
  /** Whether the run is to be discarded: unless it is published, its rows may be gone or damaged. */
  readonly toDiscard: boolean;
}
