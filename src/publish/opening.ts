/** Options for opening a run. */
export interface Opening {
  /** Whether the run is opened only to discard it: missing or damaged rows of an unpublished run are then accepted. */
  readonly toDiscard: boolean;
}
