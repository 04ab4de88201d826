/** Fewer rows came than there are: DuckDB's streams end silently when memory or disk runs out. */
export class StreamEndedError extends Error {}
